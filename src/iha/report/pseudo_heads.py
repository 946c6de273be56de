"""Tables of what pseudo-heads do in trained models."""

from collections.abc import Sequence
from typing import Any

from iha.records import Column, Record, Table


def pseudo_heads_table(named: Sequence[tuple[str, dict[str, Any]]]) -> Table:
    """One row per model: name and results of `iha.evaluate.pseudo_heads.measure`."""
    titles = (
        "P", "patterns apart", "cosine q", "cosine k", "cosine v", "effective rank", "loss without a pseudo-query",
        "a pseudo-value", "a head",
    )  # fmt: skip
    table = Table("Pseudo-heads of trained models", ["model", *(Column(title, "right") for title in titles)])
    for name, results in named:
        found = results["summary"]
        table.add(
            [
                name, found["pseudo_heads"], f"{found['patterns_apart']['mean']:.3f}",
                *(f"{found['cosine'][part]['mean']:.2f}" for part in "qkv"),
                f"{found['effective_rank']['mean']:.2f}",
                *(_cost(found[f"without_{part}"]) for part in ("query", "value", "head")),
            ]
        )  # fmt: skip
    table.note("Patterns apart: total variation between the P² attention patterns of a head, 0 for copies, at most 1.")
    table.note("Cosine: between the columns of alpha of two pseudo-heads of a head. Costs: mean (largest) rise.")
    return table


def of_records(records: Sequence[Record]) -> list[tuple[str, dict[str, Any]]]:
    return [(record.config["name"], record.results) for record in records]


def _cost(cost: dict[str, float]) -> str:
    return f"{cost['mean']:+.4f} ({cost['largest']:+.4f})"
