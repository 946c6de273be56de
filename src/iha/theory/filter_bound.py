"""Theorem 1, the other half: fewer than k heads cannot give the filter bank (sections 3.1 and 4.2, appendix B.2).

Two arguments. *Rank* (the paper's): for one X, H heads give rank at most H·d, the bank has rank k·d, so by
Eckart–Young the best fit leaves the singular values after the (H·d)-th. *Operator* (ours): as maps X ↦ output, H heads
are a sum of H products S_h ⊗ B_h, the bank is Σ A^i ⊗ E_i with k terms; by Eckart–Young on the matrix whose columns are
vec(A^i), the best H-head layer leaves exactly its smaller singular values, and we can build that layer and run it.

The first is for values that are linear in X (C = 0 in the proof, see E17), the second also for attention matrices that
do not depend on X, as in all constructions. Both need A^0 … A^(k-1) to be linearly independent, which full rank of A
does not give (E16).
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from iha.records.host import require_bytes
from iha.theory.claims import MACHINE, Claim, holds, refuted, worst
from iha.theory.layer import Layer
from iha.theory.polynomial_filters import (
    augment,
    bytes_needed,
    ceil_sqrt,
    filter_bank,
    mha_layer,
    positional,
    powers,
    random_features,
    random_graph,
    run_error,
)

WHERE = "Theorem 1, section 3.1, appendix B.2"


def rank_residual(A: Tensor, X: Tensor, k: int, heads: int) -> float:
    """Relative residual of the best rank-(H·d) fit to the bank of one X: no layer with H heads can do better."""
    singular = torch.linalg.svdvals(filter_bank(A, X[None], k)[0])
    return (singular[heads * X.shape[-1] :].norm() / singular.norm()).item()


def power_matrix(A: Tensor, k: int) -> Tensor:
    """(N², k), columns vec(A^i)."""
    return torch.stack([M.flatten() for M in powers(A, k)], dim=1)


def operator_residual(A: Tensor, k: int, attention_matrices: int) -> float:
    """Relative residual of the best bank made of this many attention matrices, over all inputs X at once."""
    singular = torch.linalg.svdvals(power_matrix(A, k))
    return (singular[attention_matrices:].norm() / singular.norm()).item()


def best_layer(A: Tensor, d: int, k: int, heads: int) -> tuple[Layer, Tensor]:
    """The best H-head linear MHA layer and its output projection (H·d, k·d), by truncated SVD."""
    N = A.shape[0]
    left, singular, right = torch.linalg.svd(power_matrix(A, k), full_matrices=False)
    w_q = torch.stack([positional((left[:, h] * singular[h]).reshape(N, N), d) for h in range(heads)])
    w_k = positional(torch.eye(N, dtype=A.dtype), d).repeat(heads, 1, 1)
    w_v = torch.eye(d + N, d, dtype=A.dtype).repeat(heads, 1, 1)
    w_o = torch.kron(
        right[:heads].contiguous(), torch.eye(d, dtype=A.dtype)
    )  # head h enters block i with weight right[h, i]
    return Layer(w_q, w_k, w_v), w_o


def measured_residual(A: Tensor, d: int, k: int, heads: int) -> float:
    """Run the best layer on every basis input E_nc: the squared errors add up to those of the whole linear map."""
    N = A.shape[0]
    layer, w_o = best_layer(A, d, k, heads)
    wrong, total = 0.0, 0.0
    for X in torch.eye(N * d, dtype=A.dtype).reshape(N * d, N, d).split(16):
        want = filter_bank(A, X, k)
        wrong += (layer(augment(X), score="linear") @ w_o - want).square().sum().item()
        total += want.square().sum().item()
    return (wrong / total) ** 0.5


def iha_attention_rank(heads: int, pseudo_heads: int, nodes: int, seed: int) -> int:
    """How many linearly independent attention matrices all heads of a random linear IHA layer have: at most H².

    Every pseudo-head score is a combination of the H² products Q_m K_m'ᵀ, whatever P is.
    """
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, heads, nodes, nodes, generator=generator, dtype=torch.float64)
    aq, ak = torch.randn(2, heads, heads, pseudo_heads, generator=generator, dtype=torch.float64)
    pseudo_q, pseudo_k = torch.einsum("mhp,mnd->hpnd", aq, q), torch.einsum("mhp,mnd->hpnd", ak, k)
    maps = torch.einsum("hpnd,hrmd->hprnm", pseudo_q, pseudo_k)  # (H, P, P, N, N)
    return int(torch.linalg.matrix_rank(maps.flatten(0, 2).flatten(1)))


def one_head_layer(A: Tensor, d: int, k: int) -> Layer:
    """One head whose values hold k copies of X: sufficient for the bank when A = I, a full-rank matrix (E16)."""
    N = A.shape[0]
    w_v = torch.cat((torch.eye(d, dtype=A.dtype).repeat(1, k), torch.zeros(N, k * d, dtype=A.dtype)))
    return Layer(positional(A, d)[None], positional(torch.eye(N, dtype=A.dtype), d)[None], w_v[None])


def null_space_head(N: int, d: int, seed: int) -> tuple[float, float]:
    """A head with Att ≠ 0 and values X·B + C, C ≠ 0, whose output is Att·X·B for every X: the proof rules it out (E17).

    Returns the largest difference that C makes to the output, and the smallest |entry| of C.
    """
    generator = torch.Generator().manual_seed(seed)
    attention = torch.randn(N, N, generator=generator, dtype=torch.float64)
    C = torch.randn(N, d, generator=generator, dtype=torch.float64)
    attention -= attention @ C @ torch.linalg.pinv(C)  # now singular: it sends the columns of C to zero
    w_v = torch.eye(d + N, d, dtype=torch.float64)
    w_v_c = torch.cat((torch.eye(d, dtype=torch.float64), C))
    w_q, w_k = positional(attention, d)[None], positional(torch.eye(N, dtype=torch.float64), d)[None]
    x = augment(random_features(N, d, seed))
    plain, with_c = Layer(w_q, w_k, w_v[None])(x, score="linear"), Layer(w_q, w_k, w_v_c[None])(x, score="linear")
    return (plain - with_c).abs().max().item(), C.abs().min().item()


def nodes(k: int) -> int:
    """N for a chosen k: the theorem wants k·d < N, here with d = 2."""
    return max(16, 3 * k)


def require_memory(k: int) -> None:
    require_bytes(bytes_needed(nodes(k), 2, k, batch=16), f"the lower bound with k = {k}, N = {nodes(k)}")


def check(seed: int = 0, k: int | None = None) -> Iterator[Claim]:
    k = 6 if k is None else k
    if k < 2:
        raise ValueError(f"the lower bound compares k and k − 1 heads and needs k >= 2, got k = {k}")
    N, d = nodes(k), 2
    require_memory(k)
    shift = torch.eye(N, dtype=torch.float64).roll(1, 0)  # its powers are orthogonal: the best conditioned case
    graphs = {"cyclic shift": shift}
    if k <= 8:  # higher powers of a random graph are parallel to working precision
        graph = random_graph(N, seed)
        graphs["random graph"] = graph / torch.linalg.matrix_norm(graph, 2)
    X = random_features(N, d, seed, batch=1)
    for name, A in graphs.items():
        few = rank_residual(A, X[0], k, k - 1)
        yield holds(
            "bound", "k − 1 heads leave a residual, k heads none (rank)", WHERE,
            f"{name}, N = {N}, d = {d}, k = {k}: the best rank-(k − 1)d fit leaves {few:.1e} of the norm",
            error=run_error(mha_layer(A, d, k), A, X, k), tolerance=MACHINE, condition=few > 1e-6,
        )  # fmt: skip
        few = operator_residual(A, k, k - 1)
        built = [measured_residual(A, d, k, heads) for heads in (k - 1, k)]
        yield holds(
            "bound", "the best (k − 1)-head layer, built and run, leaves just that", "(ours; sharpens Theorem 1)",
            f"{name}: closed form {few:.1e}, run {built[0]:.1e}; k heads {built[1]:.1e}",
            error=worst((abs(built[0] - few), built[1])), tolerance=MACHINE, condition=few > 1e-6,
        )  # fmt: skip
    H = ceil_sqrt(k)
    ranks = [iha_attention_rank(h, p, 12, seed) for h, p in ((1, 3), (2, 2), (2, 5), (3, 3))]
    yield holds(
        "bound", "IHA needs ⌈√k⌉ heads: H heads have at most H² independent attention matrices",
        "(ours; not in the paper)",
        f"ranks {ranks} for (H, P) = (1,3), (2,2), (2,5), (3,3); H = {H - 1} is too few for k = {k}",
        condition=ranks == [1, 4, 4, 9] and k > (H - 1) ** 2 and operator_residual(shift, k, (H - 1) ** 2) > 1e-6,
    )  # fmt: skip
    yield from check_proof(seed, N, d, k, shift)


def check_proof(seed: int, N: int, d: int, k: int, shift: Tensor) -> Iterator[Claim]:
    """Steps of the printed proof that do not hold as written."""
    eye = torch.eye(N, dtype=torch.float64)
    X = random_features(N, d, seed)
    one = one_head_layer(eye, d, k)
    error = (one(augment(X), score="linear") - filter_bank(eye, X, k)).abs().max().item()
    yield refuted(
        "bound", "a full-rank A always needs k heads", WHERE, f"A = I: one head is exact ({error:.0e})",
        condition=error == 0.0, erratum="E16",
    )  # fmt: skip
    rank = int(torch.linalg.matrix_rank(filter_bank(eye, X[:1], k)[0]))
    yield refuted(
        "bound", "rank[X … A^(k-1)X] = min(N, Σ rank(A^i X)), i = 0..k", "appendix B.2, rank equation",
        f"A = I: rank {rank}, and the printed sum has k + 1 = {k + 1} terms", error=float(min(N, (k + 1) * d) - rank),
        at_least=1,
        erratum="E16",
    )  # fmt: skip
    product, entries = null_space_head(N, d, seed)
    yield refuted(
        "bound", "Att·C = 0 and Att ≠ 0 imply C = 0", "appendix B.2, X = 0 step",
        f"a singular Att, every |C| ≥ {entries:.0e}: the output differs by {product:.0e}", erratum="E17",
        condition=product <= MACHINE and entries > 1e-3,
    )  # fmt: skip
    independent = operator_residual(shift, 2, 1)
    yield refuted(
        "bound", "the case in which one head spans two powers (d < d₁ < 2d) occurs", "appendix B.2, second case",
        "one attention matrix would have to equal a·I and b·A", error=independent, at_least=0.1, erratum="E17",
    )  # fmt: skip
