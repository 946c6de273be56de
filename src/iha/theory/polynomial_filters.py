"""Theorems 1 and 3: the filter bank [X, AX, …, A^(k-1)X] by linear attention (sections 3.1 and 4.2, appendix B.2).

The input is X̂ = [X, I], so a head can address positions: W_Q = [0; A^i] and W_K = [0; I] make the attention matrix
A^i. MHA needs one head per power. IHA with H = ⌈√k⌉ heads lets query A^((h-1)H) meet keys A^(j-1) for all j, and
routes the j-th product into the j-th block of its output: H² ≥ k powers.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from iha.records.host import require_bytes
from iha.synthetic.tasks.polynomial import filter_bank, powers
from iha.theory.claims import MACHINE, Claim, holds, refuted, summed, worst
from iha.theory.layer import Layer, router_mixing

WHERE = "Theorem 3, section 4.2, appendix B.2"


def ceil_sqrt(n: int) -> int:
    """⌈√n⌉ without floating point."""
    return math.isqrt(n - 1) + 1


def random_graph(nodes: int, seed: int, *, directed: bool = True, degree: float = 2.5) -> Tensor:
    """0/1 adjacency matrix without loops. Directed by default: a symmetric one would hide a missing transpose (E7)."""
    generator = torch.Generator().manual_seed(seed)
    edges = (torch.rand(nodes, nodes, generator=generator) < degree / nodes).double()
    edges = edges if directed else ((edges + edges.T) > 0).double()
    return edges.fill_diagonal_(0)


def augment(X: Tensor) -> Tensor:
    """X̂ = [X, I]: (B, N, d) -> (B, N, d + N)."""
    N = X.shape[1]
    return torch.cat((X, torch.eye(N, dtype=X.dtype).expand(X.shape[0], N, N)), dim=-1)


def positional(M: Tensor, d: int) -> Tensor:
    """[0; M], the projection that reads the identity part of X̂: (d + N, N)."""
    return torch.cat((torch.zeros(d, M.shape[1], dtype=M.dtype), M))


def mha_layer(A: Tensor, d: int, k: int) -> Layer:
    """One head per power: k heads."""
    N = A.shape[0]
    w_q = torch.stack([positional(M, d) for M in powers(A, k)])
    w_k = torch.stack([positional(torch.eye(N, dtype=A.dtype), d)] * k)
    w_v = torch.eye(d + N, d, dtype=A.dtype).repeat(k, 1, 1)
    return Layer(w_q, w_k, w_v)


def iha_layer(A: Tensor, d: int, k: int) -> Layer:
    """⌈√k⌉ heads, as many pseudo-heads: query A^((h-1)H), key (A^(j-1))ᵀ, value X into block j of H blocks."""
    N, H = A.shape[0], ceil_sqrt(k)
    all_powers = powers(A, (H - 1) * H + 1)
    w_q = torch.stack([positional(all_powers[h * H], d) for h in range(H)])
    w_k = torch.stack([positional(all_powers[j].T, d) for j in range(H)])
    w_v = torch.zeros(H, d + N, d * H, dtype=A.dtype)
    for j in range(H):
        w_v[j, :d, j * d : (j + 1) * d] = torch.eye(d)
    return Layer(w_q, w_k, w_v, router_mixing(H, A.dtype))


def mha_parameters(N: int, d: int, k: int) -> int:
    return 2 * N * (N + d) * k + d * (N + d) * k


def iha_parameters(N: int, d: int, k: int) -> int:
    H = ceil_sqrt(k)
    return 2 * N * (N + d) * H + d * (N + d) * H**2 + 4 * H**3


def relative_error(got: Tensor, want: Tensor, d: int) -> float:
    """Largest error of a power block, relative to that block's largest entry: powers grow, errors grow with them."""
    if got.shape != want.shape:
        raise ValueError(f"shapes differ: {tuple(got.shape)} and {tuple(want.shape)}")
    size = want.unflatten(-1, (-1, d)).abs().amax(dim=(0, 1, 3)).clamp_min(1e-300)
    difference = (got - want).unflatten(-1, (-1, d)).abs().amax(dim=(0, 1, 3))
    return (difference / size).max().item()


def run_error(layer: Layer, A: Tensor, X: Tensor, k: int, *, score: str = "linear", causal: str | None = None) -> float:
    """The layer's first k blocks against the filter bank (the H² − k further blocks are padding)."""
    d = X.shape[-1]
    got = layer(augment(X), score=score, causal=causal)[..., : k * d]
    return relative_error(got, filter_bank(A, X, k), d)


def random_features(N: int, d: int, seed: int, batch: int = 2) -> Tensor:
    return torch.randn(batch, N, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def bytes_needed(N: int, d: int, k: int, batch: int = 2) -> int:
    """Weights and the largest tensors of a run of both layers, in float64: scores, and the temporaries made of them."""
    H = ceil_sqrt(k)
    weights = mha_parameters(N, d, k) + iha_parameters(N, d, k) + 2 * k * N * N
    scores = batch * max(k * N * N, H * (N * H) ** 2)
    return 8 * (weights + 4 * scores)


def check_sizes(k: int | None) -> tuple[tuple[int, int], ...]:
    """(N, d) of the checks: small ones for the default orders, a larger one for a chosen k."""
    return ((8, 1), (12, 2), (20, 3)) if k is None else ((24, 2),)


def require_memory(k: int) -> None:
    for N, d in check_sizes(k):
        require_bytes(bytes_needed(N, d, k), f"the filter bank with k = {k}, N = {N}, d = {d}")


def check(seed: int = 0, k: int | None = None) -> Iterator[Claim]:
    orders = (1, 2, 3, 4, 5, 9, 10, 16) if k is None else (k,)
    require_memory(max(orders))
    for N, d in check_sizes(k):
        for name, build, formula in (("MHA", mha_layer, mha_parameters), ("IHA", iha_layer, iha_parameters)):
            errors, counted = [], []
            for order in orders:
                A = random_graph(N, seed + order)
                A = A / max(1.0, A.sum(1).max().item()) if order > 16 else A  # keep A^k finite
                layer = build(A, d, order)
                errors.append(run_error(layer, A, random_features(N, d, seed), order))
                counted.append((formula(N, d, order), layer.count()))
            heads = "k heads" if name == "MHA" else "⌈√k⌉ heads"
            which = ", ".join(map(str, orders))
            yield holds(
                "polynomial",
                f"{name} with {heads} gives the filter bank", WHERE if name == "IHA" else "Theorem 1, section 3.1",
                f"N = {N}, d = {d}, k = {which}, random directed graphs; parameters added up",
                error=worst(errors), tolerance=MACHINE,
                **summed(counted),
            )  # fmt: skip
    yield from check_example(seed)
    yield from check_print(seed)


def example_layer(A: Tensor, d: int, *, printed: bool) -> Layer:
    """The k = 4 example; the first printing of it has W_Q^(2) = [0; (A²)ᵀ] (E7)."""
    layer = iha_layer(A, d, 4)
    if printed:
        layer.w_q[1] = positional((A @ A).T, d)
    return layer


def check_example(seed: int) -> Iterator[Claim]:
    N, d = 10, 2
    directed, undirected = random_graph(N, seed), random_graph(N, seed, directed=False)
    X = random_features(N, d, seed)
    yield holds(
        "polynomial", "example k = 4: two heads give X, AX | A²X, A³X", "appendix B.2, examples",
        "directed graph, N = 10",
        error=run_error(example_layer(directed, d, printed=False), directed, X, 4), tolerance=MACHINE, erratum="E7",
        formula=iha_parameters(N, d, 4), allocated=example_layer(directed, d, printed=False).count(),
    )  # fmt: skip
    yield refuted(
        "polynomial", "example k = 4 with W_Q^(2) = (A²)ᵀ", "appendix B.2, first example",
        "directed graph; right only when A is symmetric", erratum="E7", at_least=0.1,
        error=run_error(example_layer(directed, d, printed=True), directed, X, 4),
        condition=run_error(example_layer(undirected, d, printed=True), undirected, X, 4) <= MACHINE,
    )  # fmt: skip


def check_print(seed: int) -> Iterator[Claim]:
    """What is printed differently in different places."""
    N, d, k = 12, 2, 9
    A, X, H = random_graph(N, seed), random_features(N, d, seed), ceil_sqrt(k)
    layer = iha_layer(A, d, k)
    yield refuted(
        "polynomial", "IHA takes … + ⌈√k⌉² mixing parameters", "appendix B.2, first construction",
        f"N = {N}, d = {d}, k = {k}",
        formula=2 * N * (N + d) * H + d * (N + d) * H**2 + H**2, allocated=layer.count(), erratum="E15",
    )  # fmt: skip
    yield refuted(
        "polynomial", "MHA takes HN(N+d) + kd(N+d) parameters", "appendix B.2, end of the minimality proof",
        "H = k: a factor 2 is missing", formula=k * N * (N + d) + k * d * (N + d), allocated=mha_layer(A, d, k).count(),
        erratum="E15",
    )  # fmt: skip
    yield refuted(
        "polynomial", "the value matrix is (N+d) × ⌈d√k⌉", "appendix B.2, first construction",
        "d = 3, k = 2: ⌈d√k⌉ = 5",
        formula=math.ceil(3 * math.sqrt(2)), allocated=iha_layer(A, 3, 2).w_v.shape[-1], erratum="E18",
    )  # fmt: skip
    yield refuted(
        "polynomial", "P̄ = softmax(Q̄K̄ᵀ)V̄ in the construction", "appendix B.2, second construction",
        "softmax instead of linear",
        error=run_error(layer, A, X, k, score="softmax"), at_least=0.1, erratum="E18",
    )  # fmt: skip
    forward = A.tril() + torch.eye(N, dtype=A.dtype)  # a token attends only to itself and earlier ones
    yield refuted(
        "polynomial", "the filter bank under the causal mask of Definition 1", "Definition 1, Theorems 1 and 3",
        "any graph with an edge from a later token; a lower triangular A is exact", erratum="E14", at_least=0.1,
        error=run_error(layer, A, X, k, causal="token"),
        condition=run_error(iha_layer(forward, d, k), forward, X, k, causal="token") <= MACHINE,
    )  # fmt: skip
    # A fair count: the value width is H²d ≥ kd, so few powers are cheaper with MHA.
    cheaper = [order for order in range(1, 26) if iha_parameters(64, 4, order) < mha_parameters(64, 4, order)]
    yield holds(
        "polynomial", "IHA needs fewer parameters than MHA", "Theorem 3",
        f"N = 64, d = 4: from k = {min(cheaper)} on; k = 1 and 2 are dearer",
        condition=cheaper == list(range(3, 26)), erratum="E19", limited=True,
    )  # fmt: skip
