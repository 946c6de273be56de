"""A verdict per claim of the paper: holds, does not hold here, or not tested here. Ours beside the paper's."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from iha.evaluate.paper import BASELINE, FINE_TUNED, PRETRAIN, PaperTable
from iha.report.page.results import Results
from iha.report.page.section import Section, Text, repeat
from iha.report.page.synthetic import PAPER_LEAD, TASKS
from iha.synthetic.files import RESULTS_KIND

State = Literal["holds", "fails", "open"]
WORDS: dict[State, str] = {"holds": "holds", "fails": "does not hold here", "open": "not tested here"}


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
    """Judged only by complete runs of the paper's own model. Other runs are shown but decide nothing."""
    verdicts = []
    for task, hops in TASKS.items():
        claim = f"{hops}: IHA is ahead of 2-simplicial attention"
        paper, where = f"by up to {PAPER_LEAD[task]} %", "appendix D"
        command = f"iha synth {task} --scale paper"
        leads = [lead for found in results.of_kind(RESULTS_KIND) if (lead := _lead(found.record, task)) is not None]
        whole = [lead for lead in leads if lead["paper_model"] and lead["finished"]]
        if whole:
            best = max(lead["points"] for lead in whole)
            ours = "; ".join(f"{lead['points']:+.1f} points ({lead['name']})" for lead in whole)
            verdicts.append(Verdict(claim, where, paper, ours, "holds" if best > 0 else "fails", command))
        else:
            ours = "; ".join(f"{lead['points']:+.1f} points ({lead['name']})" for lead in leads) or "not run"
            note = " — not the paper's model run to its end" if leads else ""
            verdicts.append(Verdict(claim, where, paper, ours + note, "open", command))
    return verdicts


def _lead(record: Any, task: str) -> dict[str, Any] | None:
    """IHA's best variant over 2-simplicial attention's, in points of test accuracy."""
    summary = (record.results or {}).get("summary", {})
    if summary.get("task") != task:
        return None
    scores: dict[str, list[dict[str, Any]]] = {"iha": [], "simplicial": []}
    for variant in summary["variants"]:
        config = variant["config"]
        if config["mechanism"] == "iha" and config["num_pseudo_heads"] > 1:
            scores["iha"].append(variant)
        elif config["mechanism"] == "simplicial":
            scores["simplicial"].append(variant)
    if not all(scores.values()):
        return None
    iha, other = (max(group, key=lambda v: v["final"]["mean"]) for group in scores.values())
    finished = all(all(variant["finished"]) for group in scores.values() for variant in group)
    return {
        "name": record.config.get("experiment", task), "finished": finished,
        "points": 100 * (iha["final"]["mean"] - other["final"]["mean"]),
        "paper_model": iha["config"].get("model") == "paper",
    }  # fmt: skip


def language_model(results: Results) -> list[Verdict]:
    """Nothing can be tested here at 2.4 B parameters; the scale model's numbers are shown beside the paper's."""
    rows = {
        row["mechanism"]: row
        for found in results.of_kind("scale-model")
        for phase in found.record.results.values()
        if phase["phase"] == "pretrain"
        for row in phase["rows"]
        if not row["variant"]
    }
    small = "not run"
    paired = rows["iha"]["paired"] if "iha" in rows else None
    if paired and paired["n"]:
        small = f"at {rows['iha']['parameters'] / 1e6:.1f} M parameters: loss {paired['mean']:+.4f}"
        small += f" ± {paired['sd']:.4f} over {paired['n']} seeds" if paired["sd"] is not None else ", one seed"
    command = "iha experiment scale-model --size 2.4b"
    verdicts = [_best(table, small, command) for table in (PRETRAIN, FINE_TUNED)]
    multi_key = "+27 %, +32 % and +112 % at 4k, 8k and 16k over Global Attention"
    return [
        *verdicts,
        Verdict("RULER Multi-Key retrieval improves", "section 5.2", multi_key, small, "open", command),
    ]


def _best(table: PaperTable, ours: str, command: str) -> Verdict:
    first, base = table.rows["IHA"], table.rows[BASELINE]
    gains = [
        f"{measure.title} {a - b:+.{measure.decimals}f}"
        for measure, a, b in zip(table.measures, first, base, strict=True)
        if a is not None and b is not None
    ]
    return Verdict(f"IHA is best on average: {table.title}", "section 5.3", "; ".join(gains), ours, "open", command)


JUDGES: tuple[Callable[[Results], list[Verdict]], ...] = (theorems, composition, language_model)
