"""The paper's own tables against its own text: ranks, differences, and the abstract's account of them (E9, E10)."""

from collections.abc import Iterator

from iha.evaluate.paper import BASELINE, FINE_TUNED, PRETRAIN, PaperTable
from iha.evaluate.statistics import average_ranks
from iha.theory.claims import Claim, holds, refuted

# The last column of the tables: Table 1 is FINE_TUNED, Table 2 is PRETRAIN.
PRINTED_RANKS: dict[str, dict[str, float]] = {
    FINE_TUNED.title: {"IHA": 1.5, BASELINE: 3.8, "Global+Local": 4.3, "Talking Heads": 2.5, "Diff Transformer": 2.8},
    PRETRAIN.title: {"IHA": 1.4, BASELINE: 2.9, "Global+Local": 2.9, "Talking Heads": 4.0, "Diff Transformer": 3.5},
}
MULTI_KEY_GAINS = {"4k": 27, "8k": 32, "16k": 112}  # per cent over Global Attention, section 5.2
ABSTRACT_MULTI_KEY = (10, 20)  # per cent


def rank_of(model: str, metric: int, table: PaperTable) -> float | None:
    """Rank by value, 1 the best, ties averaged; None where the model reports nothing."""
    return average_ranks({name: (row[metric],) for name, row in table.rows.items()})[model]


def rank_error(table: PaperTable) -> float:
    """The largest difference between a printed average rank and the one that the printed values give."""
    computed, printed = average_ranks(table.rows), PRINTED_RANKS[table.title]
    return max(abs((computed[model] or 0.0) - rank) for model, rank in printed.items())


def check(seed: int = 0) -> Iterator[Claim]:
    for name, table in (("Table 1", FINE_TUNED), ("Table 2", PRETRAIN)):
        yield holds(
            "tables", "average ranks", name, "ties averaged, over the metrics that a model reports",
            error=rank_error(table), tolerance=0.05,
        )  # fmt: skip
    third = rank_of("IHA", 5, FINE_TUNED)
    yield refuted(
        "tables", "IHA is second best on both MBPP metrics", "section 5.3", f"P@10: 43.1, 41.9, 41.6; rank {third:.0f}",
        condition=third == 3 and rank_of("IHA", 4, FINE_TUNED) == 2, erratum="E9",
    )  # fmt: skip
    yield refuted(
        "tables", "Multi-Key retrieval improves by 10–20 %", "abstract, sections 1 and 6",
        "section 5.2 says +27 %, +32 %, +112 %",
        error=float(min(MULTI_KEY_GAINS.values()) - ABSTRACT_MULTI_KEY[1]), at_least=1, erratum="E10",
    )  # fmt: skip
