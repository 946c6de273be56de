"""The paper's own tables against its own text: ranks, differences, and what the abstract makes of them (E9, E10)."""

from collections.abc import Iterator

from iha.theory.claims import Claim, holds, refuted

# Table 1 (after fine-tuning): GSM8K P@1, Maj@16, MATH-500 P@1, Maj@16, MBPP P@1, P@10; then the printed average rank.
FINE_TUNED: dict[str, tuple[list[float | None], float]] = {
    "IHA": ([34.3, 54.2, 10.0, 18.4, 15.5, 41.6], 1.5),
    "Global": ([29.5, 48.4, 8.8, 15.6, 14.7, 41.2], 3.8),
    "Global+Local": ([26.5, 46.9, 7.6, 15.0, 15.0, 41.9], 4.3),
    "Talking Heads": ([29.3, 49.4, 7.8, 18.2, 15.9, 43.1], 2.5),
    "Diff": ([31.6, 53.5, 9.0, 18.0, 15.3, 39.2], 2.8),
}
# Table 2 (pre-trained): GSM8K EM, Maj@5, MATH-500 EM, MBPP P@1, HumanEval P@1.
PRE_TRAINED: dict[str, tuple[list[float | None], float]] = {
    "IHA": ([8.34, 8.42, 3.54, 24.5, 17.1], 1.4),
    "Global": ([5.61, 5.61, 2.88, 23.4, 17.2], 2.9),
    "Global+Local": ([6.82, 6.90, 2.26, 23.6, 16.0], 2.9),
    "Talking Heads": ([5.46, 5.38, None, 23.8, 16.0], 4.0),
    "Diff": ([5.46, 5.61, None, 25.0, 15.4], 3.5),
}
MULTI_KEY_GAINS = {"4k": 27, "8k": 32, "16k": 112}  # per cent over Global Attention, section 5.2
ABSTRACT_MULTI_KEY = (10, 20)  # per cent


def rank_of(model: str, metric: int, table: dict[str, tuple[list[float | None], float]]) -> float | None:
    """Rank by value, 1 the best, ties averaged; None where the model reports nothing."""
    mine = table[model][0][metric]
    if mine is None:
        return None
    values = [v for row, _ in table.values() if (v := row[metric]) is not None]
    better, equal = sum(v > mine for v in values), sum(v == mine for v in values)
    return better + (equal + 1) / 2


def average_rank(model: str, table: dict[str, tuple[list[float | None], float]]) -> float:
    ranks = [r for m in range(len(table[model][0])) if (r := rank_of(model, m, table)) is not None]
    return sum(ranks) / len(ranks)


def check(seed: int = 0) -> Iterator[Claim]:
    for name, table in (("Table 1", FINE_TUNED), ("Table 2", PRE_TRAINED)):
        yield holds(
            "tables", "average ranks", name, "ties averaged, over the metrics that a model reports",
            error=max(abs(average_rank(model, table) - printed) for model, (_, printed) in table.items()),
            tolerance=0.05,
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
