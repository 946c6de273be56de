"""The tables of `iha bench eval`, from its record."""

from iha.records import Column, Record, Table
from iha.report.bench import warnings


def eval_tables(record: Record) -> list[Table]:
    results, config = record.results, record.config
    tables = [Table("What evaluating costs", ["what", "against", *_numbers("s", "s against", "ratio", "spread")])]
    sides = {
        "harness": ("an evaluation", "bare generate, same batches", "harness", "bare"),
        "samples": (f"{config['samples']} samples, prompt read once", "num_return_sequences", "shared", "separate"),
    }
    for name, (what, against, side, other) in sides.items():
        row = results[name]
        seconds = (f"{row['seconds'][each]:.2f}" for each in (side, other))
        spread = None if row["spread"] is None else f"{row['spread']:.0%}"
        tables[0].add([what, against, *seconds, f"{row['ratio']:.2f}", spread])
    jail = results["jail"]
    tables[0].note(jail.get("unavailable") or f"jail: {1e3 * jail['best']:.0f} ms per program, at best")
    tables[0].notes += [f"warning: {warning}" for warning in warnings(record)]
    ruler = Table("RULER: seconds per sample", ["task", *_numbers("length", "tokens", "first", "next")])
    for row in results["ruler"]:
        ruler.add([row["task"], row["length"], row["tokens"], f"{row['first']:.2f}", f"{row['next']:.2f}"])
    return [*tables, ruler]


def _numbers(*titles: str) -> list[Column]:
    return [Column(title, align="right", wrap=False) for title in titles]
