"""How many pseudo-queries and pseudo-keys the theorems need: P_q and P_k apart (not in the paper).

The paper gives a head as many pseudo-queries as pseudo-keys, P of each, at P² times the cost of multi-head attention.
*Corrected statement.* Linear attention is linear in the query, and a per-head R acts after it. So the P pseudo-queries
of a head are one, Σ_p R[h, p]·alpha_q[:, h, p], wherever they see the same keys. The filters of Theorem 3 need P_q = 1
and cost P, not P². Pseudo-keys do not collapse: a head has one attention matrix per pseudo-key. CPM-3 (Theorem 4) and
strictness (Theorem 2) do not use linear attention, but their R reads one pseudo-query, and the others can be removed.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from iha.ops import reference
from iha.ops.interleaved import interleaved_head_attention
from iha.ops.pairs import visible
from iha.ops.visibility import Visibility
from iha.theory.claims import MACHINE, Claim, holds, largest_error, summed, worst
from iha.theory.cpm3 import Network, Task, build, parameters
from iha.theory.cpm3_claims import ROUNDING, count_error
from iha.theory.filter_bound import operator_residual
from iha.theory.layer import Layer, Mixing, Operator
from iha.theory.polynomial_filters import (
    ceil_sqrt,
    iha_layer,
    iha_parameters,
    random_features,
    random_graph,
    run_error,
)
from iha.theory.strictness import (
    additivity_gap,
    inputs,
    repeated,
    run,
    score_and_value,
    signed_mixing,
    with_mixing,
)
from iha.theory.superset import folded, inclusion_error, random_layer

WHERE = "(ours; not in the paper)"
OPERATORS: dict[str, Operator] = {
    "reference": reference.interleaved_head_attention,
    "fast path": interleaved_head_attention,
}


def random_mixing(heads: int, P_q: int, P_k: int, seed: int) -> Mixing:
    """Normal alpha and per-head R (H, P_q), scaled so that outputs are of order one."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) / heads**0.5

    alpha_q, alpha_k, alpha_v = (normal(heads, heads, P) for P in (P_q, P_k, P_k))
    return Mixing(alpha_q, alpha_k, alpha_v, normal(heads, P_q))


def one_query(mixing: Mixing) -> Mixing:
    """The P_q pseudo-queries of a head as the one that linear attention makes of them, for a per-head R (H, P_q)."""
    alpha_q = torch.einsum("mhp,hp->mh", mixing.alpha_q, mixing.collapse)[:, :, None]  # (H, H, 1)
    return replace(mixing, alpha_q=alpha_q, collapse=torch.ones_like(mixing.collapse[:, :1]))


def without_unread_queries(layer: Layer) -> Layer:
    """Without the pseudo-queries that a full R (H, H*P_q) does not read: the same function, whatever the scores."""
    assert layer.mixing is not None
    H, P = layer.heads, layer.mixing.alpha_q.shape[-1]
    R = layer.mixing.collapse.unflatten(1, (H, P))  # (H, H, P)
    read = R.abs().amax(dim=(0, 1)) > 0  # (P,)
    kept = replace(layer.mixing, alpha_q=layer.mixing.alpha_q[:, :, read], collapse=R[:, :, read].flatten(1))
    return replace(layer, mixing=kept)


def query_collapse_error(
    P_q: int, P_k: int, *, score: str = "linear", causal: str | None = None, window: int | None = None, seed: int = 0
) -> float:
    """How far P_q pseudo-queries are from the one that `one_query` makes of them."""
    base, mixing = random_layer(3, 12, 4, seed), random_mixing(3, P_q, P_k, seed)
    x = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    many, one = (
        reference.interleaved_head_attention(
            *base.project(x), *m.tensors(), causal=causal, window=window, scale=1.0, score=score,  # type: ignore[arg-type]
        )
        for m in (mixing, one_query(mixing) if causal != "virtual" else repeated_query(mixing))
    )  # fmt: skip
    return largest_error(many, one)


def repeated_query(mixing: Mixing) -> Mixing:
    """`one_query`, P times with weight 1/P: virtual causality needs as many pseudo-queries as pseudo-keys."""
    one, P = one_query(mixing), mixing.alpha_q.shape[-1]
    return replace(one, alpha_q=one.alpha_q.repeat(1, 1, P), collapse=one.collapse.repeat(1, P) / P)


def attention_rank(heads: int, P_k: int, nodes: int, seed: int) -> int:
    """How many independent attention matrices a linear layer with one pseudo-query per head has: H·min(P_k, H)."""
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, heads, nodes, nodes, generator=generator, dtype=torch.float64)
    mixing = random_mixing(heads, 1, P_k, seed)
    pseudo_q = torch.einsum("mhp,mnd->hpnd", mixing.alpha_q, q)
    pseudo_k = torch.einsum("mhp,mnd->hpnd", mixing.alpha_k, k)
    maps = torch.einsum("hpnd,hrmd->hprnm", pseudo_q, pseudo_k)  # (H, 1, P_k, N, N)
    return int(torch.linalg.matrix_rank(maps.flatten(0, 2).flatten(1)))


def filter_layer(A: Tensor, d: int, k: int) -> Layer:
    """Theorem 3 with (P_q, P_k) = (1, ⌈√k⌉)."""
    return without_unread_queries(iha_layer(A, d, k))


def filter_parameters(N: int, d: int, k: int) -> int:
    """alpha_q and R have H² entries each, where the paper's have H³."""
    H = ceil_sqrt(k)
    return iha_parameters(N, d, k) - 2 * H**3 + 2 * H**2


def cpm3_network(n_max: int, task: Task) -> Network:
    """Theorem 4 with (P_q, P_k) = (1, ⌈√N_max⌉)."""
    network = build("iha", n_max, task)
    return replace(network, attention=without_unread_queries(network.attention))


def tanh_error(*, causal: str | None, operator: Operator, tokens: int = 5, seed: int = 0) -> float:
    """Strictness with (P_q, P_k) = (1, 2), against tanh(s)·v."""
    base = random_layer(3, 12, 4, seed)
    layer = without_unread_queries(with_mixing(base, signed_mixing(3, 2, "corrected")))
    x, _ = inputs(layer, seed)
    s, v = score_and_value(layer, x)
    got = run(layer, repeated(x, tokens), causal=causal, operator=operator)
    return largest_error(got, (s.tanh()[..., None] * v)[:, None].expand_as(got))


def check(seed: int = 0) -> Iterator[Claim]:
    yield from check_linear(seed)
    yield from check_constructions(seed)
    P, N = 8, 64
    pairs = {numbers: visible(Visibility("token", None, *numbers), N) for numbers in ((1, 1), (1, P), (P, 1), (P, P))}
    ratios = [pairs[numbers] / pairs[1, 1] for numbers in ((1, P), (P, 1), (P, P))]
    yield holds(
        "numbers", "(1, P) and (P, 1) cost P times multi-head attention, (P, P) costs P²", WHERE,
        f"visible pairs under token causality, P = {P}, N = {N}: {ratios[0]:g}, {ratios[1]:g} and {ratios[2]:g}",
        condition=ratios == [P, P, P * P],
    )  # fmt: skip


def check_linear(seed: int) -> Iterator[Claim]:
    """What linear attention makes of pseudo-queries and of pseudo-keys."""
    shapes = ((2, 2), (4, 4), (3, 1), (4, 2))
    yield holds(
        "numbers", "linear attention: the pseudo-queries of a head are one", WHERE,
        "per-head R, random weights, (P_q, P_k) = (2,2), (4,4), (3,1), (4,2), no and token causality, window",
        error=worst(
            query_collapse_error(*shape, causal=causal, window=window, seed=seed)
            for shape in shapes for causal in (None, "token") for window in (None, 3)
        ),
        tolerance=MACHINE, erratum="E25",
    )  # fmt: skip
    apart = query_collapse_error(3, 3, score="softmax", seed=seed)
    virtual = query_collapse_error(3, 3, causal="virtual", seed=seed)
    yield holds(
        "numbers", "softmax does not do that, nor does virtual causality", WHERE,
        f"P = 3: softmax differs by {apart:.2f}, linear attention over the virtual index by {virtual:.2f}",
        condition=min(apart, virtual) > 0.05,
    )  # fmt: skip
    base, mixing = random_layer(4, 8, 4, seed), random_mixing(4, 5, 1, seed)
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    plain = folded(with_mixing(base, one_query(mixing)))
    k = 9
    shift = torch.eye(16, dtype=torch.float64).roll(1, 0)
    left = operator_residual(shift, k, ceil_sqrt(k))
    yield holds(
        "numbers", "one pseudo-key and any number of pseudo-queries are H heads of MHA (linear)", WHERE,
        f"(P_q, P_k) = (5, 1) folded into the projections; ⌈√k⌉ = 3 such heads leave {left:.2f} of the bank of k = 9",
        error=largest_error(with_mixing(base, mixing)(x, score="linear"), plain(x, score="linear")), tolerance=MACHINE,
        condition=left > 0.1,
    )  # fmt: skip
    sizes = ((2, 1), (2, 2), (3, 2), (3, 3), (3, 5))
    ranks = [attention_rank(*size, 12, seed) for size in sizes]
    yield holds(
        "numbers", "H heads with one pseudo-query have H·P_k independent attention matrices, P_k ≤ H", WHERE,
        f"ranks {ranks} for (H, P_k) = (2,1), (2,2), (3,2), (3,3), (3,5): ⌈√k⌉ heads need P_k = ⌈√k⌉ for k = H²",
        condition=ranks == [H * min(P_k, H) for H, P_k in sizes],
    )  # fmt: skip


def check_constructions(seed: int) -> Iterator[Claim]:
    """The paper's constructions with as few pseudo-queries as they need."""
    N, d, orders = 12, 2, (1, 2, 4, 5, 9, 16)
    errors, counted = [], []
    for order in orders:
        A = random_graph(N, seed + order)
        layer = filter_layer(A, d, order)
        errors.append(run_error(layer, A, random_features(N, d, seed), order))
        counted.append((filter_parameters(N, d, order), layer.count()))
    yield holds(
        "numbers", "Theorem 3 with P_q = 1, P_k = ⌈√k⌉ gives the filter bank", WHERE,
        f"N = {N}, d = {d}, k = {', '.join(map(str, orders))}; parameters added up",
        error=worst(errors), tolerance=MACHINE, erratum="E25", **summed(counted),
    )  # fmt: skip
    errors, counted = [], []
    for n in (1, 4, 7, 9, 16):
        network = cpm3_network(n, Task(5, 12, largest=n))
        H = ceil_sqrt(n)
        for fast in (False, True):
            errors.append(count_error(network, sorted({1, (n + 1) // 2, n}), seed, fast=fast))
        counted.append((parameters("iha", n) - 2 * H**3 + 2 * H**2, network.count()))
    yield holds(
        "numbers", "Theorem 4 with P_q = 1, P_k = ⌈√N_max⌉ counts exactly", WHERE,
        "N_max = 1, 4, 7, 9, 16; hard attention and, on the fast path, softmax at scale 1000; parameters added up",
        error=worst(errors), tolerance=ROUNDING, **summed(counted),
    )  # fmt: skip
    for name, operator in OPERATORS.items():
        yield holds(
            "numbers", "strictness with P_q = 1, P_k = 2: tanh(⟨q,k⟩/√D)·v", WHERE, f"{name}: no and token causality",
            error=worst(tanh_error(causal=causal, operator=operator, seed=seed) for causal in (None, "token")),
            tolerance=MACHINE,
        )  # fmt: skip
        errors = [
            inclusion_error(
                causal, select, pseudo_heads=P_q, pseudo_keys=P_k, window=window, rope_positions=rope,
                operator=operator, seed=seed,
            )
            for P_q, P_k in ((1, 3), (3, 1), (2, 3))
            for causal in (None, "token")
            for window in (None, 3)
            for rope in (None, "token")
            for select in range(P_q)
        ]  # fmt: skip
        yield holds(
            "numbers", "M ⊆ P for all P_q and P_k", WHERE,
            f"{name}: (P_q, P_k) = (1,3), (3,1), (2,3), no and token causality, window, token RoPE",
            error=worst(errors), tolerance=MACHINE,
        )  # fmt: skip
    layer = with_mixing(random_layer(3, 12, 4, seed), random_mixing(3, 4, 1, seed))
    gap = worst(
        additivity_gap(layer, 5, causal=causal, operator=operator, seed=seed)
        for causal in (None, "token") for operator in OPERATORS.values()
    )  # fmt: skip
    yield holds(
        "numbers", "the proof of strictness needs two pseudo-keys", WHERE,
        "(P_q, P_k) = (4, 1), random weights: linear on repeated tokens, as MHA is", error=gap, tolerance=MACHINE,
    )  # fmt: skip
