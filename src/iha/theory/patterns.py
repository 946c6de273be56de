"""How many attention patterns a head has: P² in IHA, one in MHA (sections 1 and 4), counted on real attention maps.

The maps are read off the operator itself: with one-hot values the output *is* the attention weights. Pseudo-query p
against pseudo-key p' is made visible by values that are zero in every other pseudo-head and an R that reads p alone.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from iha.ops import reference
from iha.ops.interleaved import interleaved_head_attention
from iha.theory.claims import MACHINE, Claim, holds, largest_error, refuted
from iha.theory.layer import Operator, select_pseudo_head

WHERE = "sections 1 and 4"


def attention_maps(
    q: Tensor, k: Tensor, alpha_q: Tensor, alpha_k: Tensor, *, operator: Operator, **options: Any
) -> Tensor:
    """(H, P, P, N, N): the weights of pseudo-query p on pseudo-key p', head by head; q, k are (1, N, H, D).

    The fast path needs values as wide as keys, so D must be at least N there, and values are padded with zeros.
    """
    _, N, H, D = q.shape
    P = alpha_q.shape[-1]
    width = max(N, D) if operator is not reference.interleaved_head_attention else N
    values = torch.eye(N, width, dtype=q.dtype)[None, :, None, :].repeat(1, 1, H, 1)  # (1, N, H, width)
    maps = torch.zeros(H, P, P, N, N, dtype=q.dtype)
    for key in range(P):
        alpha_v = torch.zeros(H, H, P, dtype=q.dtype)
        alpha_v[:, :, key] = torch.eye(H, dtype=q.dtype)
        for query in range(P):
            collapse = select_pseudo_head(H, P, query, q.dtype)
            out = operator(q, k, values, alpha_q, alpha_k, alpha_v, collapse, **options)  # (1, N, H, width)
            maps[:, query, key] = out[0, :, :, :N].transpose(0, 1)
    return maps


def random_maps(
    heads: int,
    pseudo_heads: int,
    *,
    score: str = "softmax",
    operator: Operator | None = None,
    N: int = 8,
    seed: int = 0,
) -> Tensor:
    """The maps of a random layer, no mask."""
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 1, N, heads, N, generator=generator, dtype=torch.float64)
    alpha_q, alpha_k = torch.randn(2, heads, heads, pseudo_heads, generator=generator, dtype=torch.float64)
    options = {"causal": None} if operator is not None else {"causal": None, "score": score}
    return attention_maps(q, k, alpha_q, alpha_k, operator=operator or reference.interleaved_head_attention, **options)


def distinct(maps: Tensor, tolerance: float = 1e-6) -> int:
    """How many of the maps (…, N, N) differ pairwise by more than the tolerance in some entry."""
    flat = maps.reshape(-1, maps.shape[-1] * maps.shape[-2])
    different = torch.cdist(flat, flat, p=float("inf")) > tolerance
    earlier = torch.ones_like(different).tril(-1)
    return int((different | ~earlier).all(dim=1).sum())


def rank(maps: Tensor) -> int:
    """How many of the maps (…, N, N) are linearly independent."""
    return int(torch.linalg.matrix_rank(maps.reshape(-1, maps.shape[-1] * maps.shape[-2])))


def effective_matrices(maps: Tensor, collapse: Tensor) -> Tensor:
    """What reaches the values of pseudo-head p' once R (H, P) has summed the pseudo-queries: (H, P, N, N)."""
    return torch.einsum("hp,hpqnm->hqnm", collapse, maps)


def check(seed: int = 0) -> Iterator[Claim]:
    H, P = 4, 3
    maps = random_maps(H, P, seed=seed)
    fast = random_maps(H, P, operator=interleaved_head_attention, seed=seed)
    yield holds(
        "patterns", "P² attention patterns per head", WHERE,
        f"softmax, H = {H}, P = {P}: distinct and linearly independent",
        error=largest_error(fast, maps), tolerance=MACHINE,
        condition=all(distinct(m) == rank(m) == P * P for m in maps),
    )  # fmt: skip
    mha = random_maps(H, 1, seed=seed)
    yield holds(
        "patterns", "one attention pattern per head in MHA", "section 1", f"H = {H}, P = 1",
        condition=all(distinct(m) == 1 for m in mha) and rank(mha) == H,
    )  # fmt: skip
    rows = maps.sum(-1)  # (H, P, P, N): how much of its weight a pseudo-query gives to one pseudo-key
    yield holds(
        "patterns", "the P blocks of a pseudo-query share one softmax: P softmaxes per head, not P²",
        "(not in the paper)",
        "each block alone sums to less than 1, the P together to 1",
        error=largest_error(rows.sum(2), torch.ones_like(rows[:, :, 0])), tolerance=MACHINE,
        condition=bool((rows < 1).all()),
    )  # fmt: skip
    sizes = ((1, 3), (2, 2), (2, 4), (3, 2), (3, 3), (4, 3))
    per_head = {size: rank(random_maps(*size, score="linear", seed=seed)[0]) for size in sizes}
    yield holds(
        "patterns", "P² patterns per head without softmax", WHERE, "it is min(P, H)²: " + describe(per_head),
        condition=all(r == min(h, p) ** 2 for (h, p), r in per_head.items()), erratum="E25", limited=True,
    )  # fmt: skip
    overall = {size: rank(random_maps(*size, score="linear", seed=seed)) for size in sizes}
    yield holds(
        "patterns", "HP² patterns overall", "section 4",
        f"softmax: {H * P * P} distinct; without softmax the scores of all heads span only H²: " + describe(overall),
        condition=distinct(maps) == H * P * P and all(r == h * h for (h, _), r in overall.items()), erratum="E25",
        limited=True,
    )  # fmt: skip
    single = per_head[(1, 3)]
    yield refuted(
        "patterns", "k patterns in a layer of one head (the paper: “up to … modeling constraints”)", "section 3.1",
        f"H = 1, P = 3, linear: {single} pattern, not 9", condition=single == 1, erratum="E25",
    )  # fmt: skip
    collapse = torch.randn(H, P, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    after = [rank(m) for m in effective_matrices(maps, collapse)]
    yield holds(
        "patterns", "P² patterns per head reach the output", WHERE,
        f"R sums over the pseudo-queries: {after[0]} = P attention matrices per head act on the values",
        condition=after == [P] * H, erratum="E25", limited=True,
    )  # fmt: skip


def describe(ranks: dict[tuple[int, int], int]) -> str:
    return ", ".join(f"(H={h}, P={p}): {r}" for (h, p), r in ranks.items())
