"""The tables of `iha bench gpu`, from its record."""

from typing import Any

from iha.records import Column, Record, Table
from iha.report.bench import comparison_table, decoding_table, warnings

REFUSED = "–"


def gpu_tables(record: Record) -> list[Table]:
    """Tables of a "gpu-bench" record: errors, then speeds for every size."""
    tables = [_errors(record)]
    for N, H, D in record.config["sizes"]:
        here = {
            part: [row for row in record.results[part] if list(row["size"]) == [N, H, D]]
            for part in ("comparisons", "decoding")
        }
        shape = f"N = {N}, H = {H}, D = {D}, {record.config['dtypes'][0]}"
        for row in here["comparisons"]:
            row["what"] = f"{row['what']}, {row['backend']}"
        tables.append(
            comparison_table(f"Time as a ratio on {record.results['gpu']['name']}: {shape}", here["comparisons"])
        )
        tables.append(decoding_table(here["decoding"]))
    tables[1].notes += [f"warning: {warning}" for warning in warnings(record)]
    return tables


def _errors(record: Record) -> Table:
    rows = record.results["errors"]
    backends = list(dict.fromkeys(row["backend"] for row in rows))
    name = record.results["gpu"]["name"]
    columns: list[str | Column] = [
        "case",
        "dtype",
        *(Column(backend, align="right", wrap=False) for backend in backends),
    ]
    table = Table(f"Largest error on {name}, over that of the plain formula: at most 2", columns)
    found = {(row["case"], row["dtype"], row["backend"]): row for row in rows}
    for case, dtype in dict.fromkeys((row["case"], row["dtype"]) for row in rows):
        cells = []
        for backend in backends:
            row = found[case, dtype, backend]
            cells.append(_cell(row))
        table.add([case, dtype, *cells])
    table.note(f"{REFUSED}: the backend refuses the case; the reason is in the record")
    return table


def _cell(row: dict[str, Any]) -> str:
    if row["refused"]:
        return REFUSED
    worst = "crashed" if row["crashed"] else f"{max(row['ratios'].values()):.2f}"
    return worst if row["passed"] else f"{worst} FAILED"
