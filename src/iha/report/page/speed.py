"""Time and memory as measured, as ratios in one process."""

from iha.records import Column, Record, Table
from iha.report.page.results import Results
from iha.report.page.section import Figure, Missing, Section

ATTENTION, MODEL = "attention-bench", "model-bench"


def speed_section(results: Results) -> Section:
    section = Section("speed", "Speed")
    section.paragraph(
        "Speeds are ratios: both sides run in one process and take turns, and the best of several rounds counts. A "
        "ratio above 1 means that IHA is slower."
    )
    for found in results.of_kind(ATTENTION):
        section.add(Figure(attention_table(found.record, found.origin), found.record.command))
    if not results.of_kind(ATTENTION):
        section.add(Missing("the operator against scaled dot-product attention", "iha bench attention"))
    for found in results.of_kind(MODEL):
        section.add(Figure(model_table(found.record, found.origin), found.record.command))
    if not results.of_kind(MODEL):
        section.add(Missing("the language model against Llama", "iha bench model"))
    return section


def attention_table(record: Record, origin: str) -> Table:
    columns: list[str | Column] = [
        "what",
        "against",
        Column("N", "right"),
        Column("P", "right"),
        "direction",
        Column("time ratio", "right"),
    ]
    table = Table(f"The operator ({origin}, {_machine(record)})", columns)
    for row in record.results["comparisons"]:
        ratio = f"{row['ratio']:.2f}"
        table.add([row["what"], row["against"], row["num_tokens"], row["num_pseudo_heads"], row["direction"], ratio])
    return table


def model_table(record: Record, origin: str) -> Table:
    columns: list[str | Column] = [
        "what",
        "model",
        "variant",
        Column("tokens/s, Llama = 1", "right"),
        Column("cache bytes, Llama = 1", "right"),
    ]
    table = Table(f"The language model ({origin}, {_machine(record)})", columns)
    for row in record.results["rows"] if isinstance(record.results, dict) else record.results:
        cache = row.get("cache_ratio")
        table.add([row["what"], row["preset"], row["variant"], f"{row['ratio']:.2f}", cache and f"{cache:.2f}"])
    return table


def _machine(record: Record) -> str:
    return f"{record.machine.get('processor')}, {record.machine.get('threads')} threads"
