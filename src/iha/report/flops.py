"""The answer of `iha flops` as tables: the same cells for the terminal (rich) and for a page (Markdown)."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table as RichTable

from iha.accounting.table import Answer


@dataclass(frozen=True)
class Table:
    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def markdown(self) -> str:
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        return f"**{self.title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def rich(self) -> RichTable:
        table = RichTable(title=self.title, title_justify="left")
        for name in self.header:
            table.add_column(name, justify="left" if name in _WORDS else "right")
        for row in self.rows:
            table.add_row(*row)
        return table


_WORDS = ("mechanism", "schedule", "layers", "flash kernel", "counted", "convention")


def tables(answer: Answer) -> tuple[Table, Table, Table]:
    return layers_table(answer), schedules_table(answer), matches_table(answer)


def layers_table(answer: Answer) -> Table:
    question = answer.question
    shape = question.shape
    title = (
        f"One layer, {question.num_tokens} tokens: width {shape.embed_dim}, {shape.num_heads} heads, {shape.G} k/v "
        f"heads of {shape.D}, causal={shape.causal!r}, {question.element_size} bytes a number"
    )
    header = (
        "mechanism", "window", "P", "parameters", "beyond projections", "FLOPs: projections", "mixing", "attention",
        "mixing + attention, to global", "kernel's attention", "cache", "cache of pseudo-heads", "patterns a head",
        "flash kernel",
    )  # fmt: skip
    rows = [
        (
            row.mechanism, "–" if row.window is None else str(row.window), str(row.num_pseudo_heads),
            count(row.parameters.total), count(row.parameters.mixing), count(row.flops.projections),
            count(row.flops.mixing), count(row.flops.attention), f"{row.attention_to_global:.4g}",
            "–" if row.kernel_flops is None else count(row.kernel_flops.attention),
            size(row.cache_bytes), size(row.pseudo_head_cache_bytes) if row.num_pseudo_heads > 1 else "–",
            str(row.patterns_per_head), "yes" if row.flash_obstacle is None else f"no: {row.flash_obstacle}",
        )
        for row in answer.layers
    ]  # fmt: skip
    return Table(title, header, rows)


def schedules_table(answer: Answer) -> Table:
    question = answer.question
    header = (
        "schedule", "layers", "parameters", "cache", "FLOPs: attention", "to global: paper's count", "causal count",
        "exact", "exact with mixing", "and projections",
    )  # fmt: skip
    rows = [
        (
            row.schedule, "; ".join(f"{n} × {kind}" for kind, n in row.layers.items()), count(row.parameters.total),
            size(row.cache_bytes), count(row.flops.attention),
            *(f"{row.attention_to_global[name]:.4f}" for name in ("paper", "causal", "exact")),
            f"{row.with_mixing:.4f}", f"{row.with_projections:.4f}",
        )
        for row in answer.schedules
    ]  # fmt: skip
    return Table(f"The attention of {question.num_layers} layers, {question.num_tokens} tokens", header, rows)


def matches_table(answer: Answer) -> Table:
    question = answer.question
    title = (
        f"The window of IHA layers, P = {question.num_pseudo_heads}, at which four of them and a global layer cost so "
        f"much of global attention ({answer.local_window} is the one above)"
    )
    header = ("convention", "counted", "of global", "solution", "window", "ratio", "ratio one token above")
    rows = []
    for row in answer.matches:
        found = row.match
        cells = ("none", "–", "–", "–")
        if found is not None:
            above = "–" if found.ratio_above is None else f"{found.ratio_above:.4f}"
            cells = (f"{found.solution:.2f}", str(found.window), f"{found.ratio:.4f}", above)
        rows.append((row.convention, " + ".join(row.parts), f"{row.target:g}", *cells))
    return Table(title, header, rows)


def markdown(answer: Answer) -> str:
    return "\n\n".join(table.markdown() for table in tables(answer)) + "\n"


def count(number: int) -> str:
    """1234567 as 1.23 M; digits after the third are for the JSON."""
    for exponent, letter in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**exponent:
            return f"{_three_digits(number / 10**exponent)} {letter}"
    return str(number)


def size(number: int | None) -> str:
    if number is None:
        return "none"
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if number >= 1 << exponent:
            return f"{_three_digits(number / (1 << exponent))} {unit}"
    return f"{number} B"


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
