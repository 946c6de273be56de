"""The paper's own numbers, from paper.toml, and which of our tasks each column is."""

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files

from iha.evaluate.ruler.settings import MULTI_KEY, TASK_NAMES

BASELINE = "Global Attention"


@dataclass(frozen=True)
class Measure:
    """A column: the mean of one metric over some tasks."""

    title: str
    tasks: tuple[str, ...]
    metric: str
    decimals: int = 1  # that the paper gives


@dataclass(frozen=True)
class PaperTable:
    title: str
    measures: tuple[Measure, ...]
    rows: dict[str, tuple[float | None, ...]]  # in percent; None: not reported
    where: str  # in the paper
    ranks: dict[str, float] = field(default_factory=dict)  # its last column: average ranks, as printed


_PAPER = tomllib.loads(files("iha.evaluate").joinpath("paper.toml").read_text(encoding="utf-8"))


def _table(name: str) -> PaperTable:
    entry = _PAPER[name]
    measures = tuple(
        Measure(f"{title} {metric}", (task,), metric, decimals) for title, task, metric, decimals in entry["measures"]
    )
    rows = {model: tuple(None if value == "" else value for value in row) for model, row in entry["rows"].items()}
    return PaperTable(entry["title"], measures, rows, entry["where"], entry["ranks"])


PRETRAIN, FINE_TUNED = _table("pretrain"), _table("fine_tuned")
RULER_WHERE: str = _PAPER["ruler"]["where"]
RULER_AVERAGES: dict[str, float] = _PAPER["ruler"]["averages"]
MULTI_KEY_GAINS: dict[str, int] = _PAPER["ruler"]["multi_key_gains"]  # by length, per cent over Global Attention
ABSTRACT_MULTI_KEY_GAINS: tuple[int, ...] = tuple(_PAPER["ruler"]["abstract"]["multi_key_gains"])
SYNTHETIC_WHERE: str = _PAPER["synthetic"]["where"]
SYNTHETIC_LEADS: dict[str, float] = _PAPER["synthetic"]["leads"]  # of IHA over 2-simplicial attention, by task


def ruler_table(lengths: tuple[int, ...], metric: str = "RULER") -> PaperTable:
    """The paper's figure as a table: Multi-Key and all 13 tasks at each length, and all of them together."""
    measures = [
        *(Measure(f"Multi-Key {n}", tuple(f"ruler_{name}_{n}" for name in MULTI_KEY), metric) for n in lengths),
        *(Measure(f"All {n}", tuple(f"ruler_{name}_{n}" for name in TASK_NAMES), metric) for n in lengths),
        Measure("Average", tuple(f"ruler_{name}_{n}" for n in lengths for name in TASK_NAMES), metric),
    ]
    rows = {name: (*[None] * (len(measures) - 1), average) for name, average in RULER_AVERAGES.items()}
    title = "RULER" if metric == "RULER" else f"RULER as {metric} scores it"
    return PaperTable(title, tuple(measures), rows, RULER_WHERE)
