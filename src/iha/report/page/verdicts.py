"""A verdict per claim of the paper: holds, does not hold, undecided or not tested here. Ours beside the paper's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from iha.evaluate.paper import (
    BASELINE,
    FINE_TUNED,
    MULTI_KEY_GAINS,
    PRETRAIN,
    RULER_WHERE,
    SYNTHETIC_LEADS,
    SYNTHETIC_WHERE,
    PaperTable,
)
from iha.experiment.compare import compare
from iha.records import Record
from iha.report.page.language_model import scale_models
from iha.report.page.paper_model import TASKS, Bars, gather
from iha.report.page.results import Results
from iha.report.page.section import Section, Text, repeat

State = Literal["holds", "fails", "undecided", "open"]
WORDS: dict[State, str] = {
    "holds": "holds", "fails": "does not hold here", "undecided": "undecided here", "open": "not tested here",
}  # fmt: skip
SCALE_MODEL_COMMAND = "iha experiment scale-model --seeds 0,1,2"


@dataclass(frozen=True)
class Verdict:
    claim: str
    where: str
    paper: str  # its number, or its words
    ours: str
    state: State
    command: str


def verdict_section(results: Results) -> Section:
    section = Section("verdicts", "Verdicts")
    verdicts = [verdict for judge in JUDGES for verdict in judge(results)]
    counts = {state: sum(verdict.state == state for verdict in verdicts) for state in WORDS}
    items = "".join(
        f'<li><strong class="verdict {state}">{counts[state]}</strong>{escape(word)}</li>'
        for state, word in WORDS.items()
    )
    section.add(Text(f'<ul class="counts">{items}</ul>'))
    rows = "".join(
        f'<tr><td>{escape(v.claim)}<div class="note">{escape(v.where)}</div></td><td>{escape(v.paper)}</td>'
        f'<td>{escape(v.ours)}</td><td class="verdict {v.state}">{escape(WORDS[v.state])}</td>'
        f"<td>{repeat(v.command)}</td></tr>"
        for v in verdicts
    )
    head = "".join(f'<th scope="col">{word}</th>' for word in ("claim", "the paper", "here", "verdict", "repeat"))
    table = (
        f"<table><caption>Every claim, one by one</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )
    section.add(Text(f'<div class="scroll" tabindex="0" role="region" aria-label="Verdicts">{table}</div>'))
    return section


# The theorems by the names that `iha verify` gives their checks.
THEOREMS = {
    "superset": ("IHA contains multi-head attention", "Theorem 2", "exact"),
    "strictness": ("IHA computes what multi-head attention cannot", "Theorem 2", "strictly more"),
    "polynomial": ("k polynomial filters by ⌈√k⌉ heads", "Theorems 1 and 3", "Θ(√k n²) parameters"),
    "cpm3": ("CPM-3 by ⌈√N⌉ heads", "Theorem 4", "⌈√N⌉ heads"),
    "patterns": ("P² attention patterns per head", "section 4", "up to P²"),
    "flops": ("The 4:1 schedule matches global attention's FLOPs", "section 5, appendix C", "up to constant factors"),
}


def theorems(results: Results) -> list[Verdict]:
    found = results.best("verify")
    verdicts = []
    for name, (claim, where, paper) in THEOREMS.items():
        claims = [c for c in found.record.results["claims"] if c["theorem"] == name] if found else []
        if not claims:
            verdicts.append(Verdict(claim, where, paper, "not run", "open", f"iha verify --only {name}"))
            continue
        failed = sum(not c["passed"] for c in claims)
        errata = len({c["erratum"] for c in claims if c["erratum"]})
        ours = f"{len(claims)} checks, {failed} unexpected"
        ours += f"; {errata} errata on the way" if errata else ""
        verdicts.append(Verdict(claim, where, paper, ours, "fails" if failed else "holds", f"iha verify --only {name}"))
    return verdicts


def composition(results: Results) -> list[Verdict]:
    """Judged only by runs of the paper's own model that reached their early stop. Others are shown, decide nothing."""
    gathered = gather(results)
    verdicts = []
    for task, hops in TASKS.items():
        claim = f"{hops}: IHA is ahead of 2-simplicial attention"
        paper = f"by up to {SYNTHETIC_LEADS[task]} %, at both learning rates"
        leads = [bars for bars in gathered if bars.task == task and bars.lead is not None]
        whole = [bars for bars in leads if bars.finished]
        ours = "; ".join(_lead(bars) for bars in leads) or "not run with the paper's model"
        state: State = "open"
        if whole:
            ahead = [(bars.lead or 0.0) > 0 for bars in whole]
            state = "holds" if all(ahead) else "undecided" if any(ahead) else "fails"
        command = f"iha synth {task} --scale paper"
        verdicts.append(Verdict(claim, SYNTHETIC_WHERE, paper, ours, state, command))
    return verdicts


def _lead(bars: Bars) -> str:
    seeds = max(len(runs) for runs in bars.runs.values())
    when = "at the best epochs" if bars.finished else f"at epoch {bars.common_epoch}, unfinished"
    rate = f"{bars.learning_rate:g}"
    return f"{bars.lead:+.1f} points ({when}; rate {rate}, {seeds} seed{'s' if seeds > 1 else ''})"


def language_model(results: Results) -> list[Verdict]:
    """2.4 B parameters cannot be trained here. The paper's tables stay open; the scale model has a verdict."""
    studies = [one for _, runs in scale_models(results) if (one := _study(runs)) is not None]
    # The one that says most: most seeds, then most tokens.
    best = max(studies, key=lambda one: (one["paired"]["n"], one["tokens"])) if studies else None
    small = _small(best) if best else "not run"
    paper_command = "iha reproduce --scale paper"
    multi_key = ", ".join(f"+{gain} % at {length}" for length, gain in MULTI_KEY_GAINS.items())
    return [
        Verdict(
            "To scale: IHA's loss on text is below Global Attention's", "sections 5.1 and 5.3",
            "better under FLOP-matched training; no losses are printed", small, _decide(best), SCALE_MODEL_COMMAND,
        ),
        Verdict(
            "To scale: it is the pseudo-heads, beyond the window that comes with them", "section 4; a question of ours",
            "the gain is attributed to interaction between heads; there is no control",
            _beyond_the_window(best), _decide_all(best["controls"] if best else {}),
            f'{SCALE_MODEL_COMMAND} --variants "P=4,P=1 in the window of P=4"',
        ),
        *(_best(table, paper_command) for table in (PRETRAIN, FINE_TUNED)),
        Verdict(
            "RULER Multi-Key retrieval improves", RULER_WHERE, f"{multi_key} over {BASELINE}",
            "not run at this size", "open", paper_command,
        ),
    ]  # fmt: skip


def _study(runs: Sequence[Record]) -> dict[str, Any] | None:
    """IHA beside global attention after pre-training: the paired difference over seeds, at equal tokens."""
    if not any(run.config["phase"] == "pretrain" for run in runs):
        return None
    compared = compare(runs, "pretrain")
    iha = next((row for row in compared["rows"] if row["mechanism"] == "iha" and not row["variant"]), None)
    if iha is None or not iha["paired"]["n"]:
        return None
    controls = {row["label"]: row["paired_control"] for row in compared["rows"] if row["paired_control"]["n"]}
    return {
        "paired": iha["paired"], "parameters": iha["parameters"], "tokens": compared["budget"]["tokens"],
        "controls": controls,
    }  # fmt: skip


def _beyond_the_window(study: dict[str, Any] | None) -> str:
    """What pseudo-heads add to one in the same window, at equal tokens."""
    if study is None or not study["controls"]:
        return "not run"
    added = "; ".join(f"{label}: {_interval(paired)}" for label, paired in study["controls"].items())
    return f"against one pseudo-head in the same window, at equal tokens, {added}"


def _decide_all(controls: dict[str, dict[str, Any]]) -> State:
    """By all with more than one seed: they must agree."""
    states = {_decide({"paired": paired}) for paired in controls.values() if paired["n"] > 1}
    return states.pop() if len(states) == 1 else "undecided" if controls else "open"


def _interval(paired: dict[str, Any]) -> str:
    if paired["ci95"] is None:
        return f"{paired['mean']:+.3f}, one seed"
    return f"{paired['mean']:+.3f} ± {paired['ci95']:.3f}, 95 % over {paired['n']} seeds"


def _small(study: dict[str, Any]) -> str:
    paired = study["paired"]
    size = f"{study['parameters'] / 1e6:.1f} M parameters, {study['tokens'] / 1e6:.1f} M tokens"
    if paired["ci95"] is None:
        return f"{paired['mean']:+.4f} nats per token, one seed ({size})"
    return f"{paired['mean']:+.4f} ± {paired['ci95']:.4f} nats per token, 95 % over {paired['n']} seeds ({size})"


def _decide(study: dict[str, Any] | None) -> State:
    """By the 95 % interval of the paired difference; one seed decides nothing."""
    if study is None:
        return "open"
    paired = study["paired"]
    if paired["ci95"] is None or abs(paired["mean"]) <= paired["ci95"]:
        return "undecided"
    return "holds" if paired["mean"] < 0 else "fails"


def _best(table: PaperTable, command: str) -> Verdict:
    first, base = table.rows["IHA"], table.rows[BASELINE]
    gains = [
        f"{measure.title} {a - b:+.{measure.decimals}f}"
        for measure, a, b in zip(table.measures, first, base, strict=True)
        if a is not None and b is not None
    ]
    claim = f"IHA is best on average: {table.title}"
    return Verdict(claim, table.where, "; ".join(gains), "not run at this size", "open", command)


JUDGES: tuple[Callable[[Results], list[Verdict]], ...] = (theorems, composition, language_model)
