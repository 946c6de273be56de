"""The paper's own tables against its own text: ranks, differences, and the abstract's account of them (E9, E10)."""

from collections.abc import Iterator

from iha.evaluate.paper import ABSTRACT_MULTI_KEY_GAINS, FINE_TUNED, MULTI_KEY_GAINS, PRETRAIN, PaperTable
from iha.evaluate.statistics import average_ranks
from iha.theory.claims import Claim, holds, refuted


def rank_of(model: str, metric: int, table: PaperTable) -> float | None:
    """Rank by value, 1 the best, ties averaged; None where the model reports nothing."""
    return average_ranks({name: (row[metric],) for name, row in table.rows.items()})[model]


def rank_error(table: PaperTable) -> float:
    """The largest difference between a printed average rank and the one that the printed values give."""
    computed = average_ranks(table.rows)
    return max(abs((computed[model] or 0.0) - rank) for model, rank in table.ranks.items())


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
        f"section 5.2 says {', '.join(f'+{gain} %' for gain in MULTI_KEY_GAINS.values())}",
        error=float(min(MULTI_KEY_GAINS.values()) - ABSTRACT_MULTI_KEY_GAINS[1]), at_least=1, erratum="E10",
    )  # fmt: skip
