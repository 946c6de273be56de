"""The paper's bars for relation composition: runs of its own model, gathered over all records, with its leads."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from iha.evaluate.paper import SYNTHETIC_LEADS
from iha.records import Column, Table
from iha.report.page.results import Results
from iha.synthetic.files import RESULTS_KIND

MECHANISMS = {"multihead": "MHA", "mha": "MHA", "iha": "IHA", "simplicial": "2-simplicial"}
COLUMNS = ("MHA", "IHA", "2-simplicial")
TASKS = {"binary": "2-hop", "ternary": "3-hop"}
RATES = (1e-3, 1e-4)  # the paper's
PROTOCOL = {"norm": "pre", "positions": "1d", "weight_decay": 0.0, "mixing_rate": 1.0, "window": None,
            "offsets": "none", "optimiser": "adamw", "weights": "torch", "train_examples": 40_000}  # fmt: skip
SIZES = {"binary": [6, 7, 8, 9, 10], "ternary": [5, 6, 7, 8]}  # of its relations, m

Run = dict[str, Any]


@dataclass(frozen=True)
class Bars:
    """The three bars of one learning rate, as far as they were run: per mechanism its runs, one per seed."""

    task: str
    learning_rate: float
    batch_size: int
    runs: dict[str, list[Run]]  # by the names of COLUMNS

    @property
    def finished(self) -> bool:
        """All three ran until their early stop."""
        return all(self.runs.get(name) and all(run["finished"] for run in self.runs[name]) for name in COLUMNS)

    @property
    def common_epoch(self) -> int | None:
        """The last epoch that every run of IHA and 2-simplicial attention has reached."""
        compared = [run for name in COLUMNS[1:] for run in self.runs.get(name, [])]
        both = all(self.runs.get(name) for name in COLUMNS[1:])
        return min(len(run["history"]) for run in compared) if both else None

    @property
    def lead(self) -> float | None:
        """Of IHA over 2-simplicial attention in points: at the best epochs if finished, otherwise at the same epoch."""
        if self.common_epoch is None:
            return None
        iha, other = (self._accuracy(name) for name in COLUMNS[1:])
        return iha - other

    def _accuracy(self, name: str) -> float:
        if self.finished:
            return accuracy(self.runs[name])
        epoch = self.common_epoch or 1
        return 100 * mean(run["history"][epoch - 1]["test"] for run in self.runs[name])


def accuracy(runs: Sequence[Run]) -> float:
    """Test accuracy in percent at the epoch of the best validation, mean over seeds."""
    return 100 * mean(run["best"]["test"] for run in runs)


def gather(results: Results) -> list[Bars]:
    """Runs of the paper's model from all records. Of a run that occurs twice, the longer one."""
    longest: dict[tuple[Any, ...], Run] = {}
    for found in results.of_kind(RESULTS_KIND):
        for run in (found.record.results or {}).get("runs", []):
            config = run["config"]
            if not is_the_papers(config):
                continue
            key = (config["task"], config["learning_rate"], config["batch_size"], MECHANISMS[config["mechanism"]],
                   config["init"], config["seed"])  # fmt: skip
            if key not in longest or len(run["history"]) > len(longest[key]["history"]):
                longest[key] = run
    bars: dict[tuple[Any, ...], Bars] = {}
    for (task, rate, batch, name, _, _), run in sorted(longest.items(), key=lambda item: str(item[0])):
        one = bars.setdefault((task, -rate, batch), Bars(task, rate, batch, {}))
        one.runs.setdefault(name, []).append(run)
    return [bars[key] for key in sorted(bars)]


def is_the_papers(config: dict[str, Any]) -> bool:
    """Its model, data and protocol. Other initialisations of IHA than the default are shown elsewhere."""
    return (
        config.get("model") == "paper"
        and config["mechanism"] in MECHANISMS
        and config["num_heads"] == 8
        and all(config.get(name, value) == value for name, value in PROTOCOL.items())
        and (config["mechanism"] != "iha" or (config["num_pseudo_heads"] == 8 and config["init"] == "one_hot"))
        and config["task"] in TASKS
        and config["sizes"] == SIZES[config["task"]]
    )


def bars_table(bars: Sequence[Bars]) -> Table:
    """One row per task and learning rate, the paper's lead above them."""
    names = ("batch", *COLUMNS, "IHA − 2-simplicial", "epochs")
    table = Table(
        "Test accuracy of the paper's model, %", ["task", "learning rate", *(Column(n, "right") for n in names)]
    )
    table.add_section("Paper: bars without numbers; the largest lead in the text")
    for task, hops in TASKS.items():
        table.add([hops, "1e-3 or 1e-4", None, None, None, None, f"up to +{SYNTHETIC_LEADS[task]} %", None])
    table.add_section("Here")
    for one in bars:
        cells = [f"{accuracy(one.runs[name]):.1f}" if name in one.runs else None for name in COLUMNS]
        lead = None if one.lead is None else f"{one.lead:+.1f}"
        if lead and not one.finished:
            lead += f" at epoch {one.common_epoch}"
        table.add([TASKS[one.task], f"{one.learning_rate:g}", one.batch_size, *cells, lead, epochs_note(one)])
    table.note("At the epoch of the best validation. An unfinished run is compared at the last epoch that both have.")
    return table


def epochs_note(bars: Bars) -> str:
    """How far each mechanism got, in the order of the columns."""
    parts = []
    for name in COLUMNS:
        runs = bars.runs.get(name)
        if runs:
            ended = all(run["finished"] for run in runs)
            parts.append(f"{max(len(run['history']) for run in runs)}{'' if ended else '…'}")
        else:
            parts.append("–")
    return " / ".join(parts)


def missing_commands(bars: Sequence[Bars]) -> list[str]:
    """What would fill the bars that were not run, or not to their end."""
    whole = {(one.task, one.learning_rate) for one in bars if one.finished}
    return [
        f"iha synth {task} --scale paper --learning-rates {rate:g}"
        for task in TASKS
        for rate in RATES
        if (task, rate) not in whole
    ]
