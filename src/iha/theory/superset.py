"""Theorem 2, inclusion: every MHA layer is an IHA layer, for every P (section 4.1, appendix B.1).

The proof copies each head into its P pseudo-heads and lets R read one of them. Which one may be read depends on the
mask, which the proof ignores (E2): the P copies of a key share its softmax weight equally only if all P are visible.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.ops import reference
from iha.ops.interleaved import interleaved_head_attention
from iha.ops.reference import rotate
from iha.theory.claims import MACHINE, Claim, holds, largest_error, refuted, smallest, worst
from iha.theory.layer import Layer, Mixing, Operator, identity_mixing

WHERE = "Theorem 2, section 4.1, appendix B.1"
ROPE_THETA = 10_000.0


def random_layer(heads: int, width: int, head_dim: int, seed: int) -> Layer:
    """An MHA layer with random weights, float64."""
    generator = torch.Generator().manual_seed(seed)
    w_q, w_k, w_v = torch.randn(3, heads, width, head_dim, generator=generator, dtype=torch.float64) / width**0.5
    return Layer(w_q, w_k, w_v)


def multi_head_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, window: int | None = None, rope_theta: float | None = None
) -> Tensor:
    """Definition 1 by PyTorch's own attention, so that the ground truth shares no code with our operators."""
    N = q.shape[1]
    if rope_theta is not None:
        q, k = (rotate(t, torch.arange(N), rope_theta) for t in (q, k))
    distance = torch.arange(N)[:, None] - torch.arange(N)[None, :]
    visible = distance >= 0 if causal else torch.ones(N, N, dtype=torch.bool)
    if window is not None:
        visible = visible & (distance.abs() < window)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible).transpose(1, 2)  # (B, N, H, D)


def inclusion_error(
    causal: str | None,
    select: int,
    *,
    pseudo_heads: int,
    pseudo_keys: int | None = None,
    heads: int = 3,
    tokens: int = 7,
    head_dim: int = 4,
    window: int | None = None,
    rope_positions: str | None = None,
    operator: Operator = reference.interleaved_head_attention,
    seed: int = 0,
) -> float:
    """How far IHA with identity mixing and R reading pseudo-head `select` is from MHA, largest entry."""
    layer = random_layer(heads, 3 * head_dim, head_dim, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    x = torch.randn(2, tokens, 3 * head_dim, generator=generator, dtype=torch.float64)
    q, k, v = layer.project(x)
    theta = None if rope_positions is None else ROPE_THETA
    mixing = identity_mixing(heads, pseudo_heads, select=select)
    if pseudo_keys is not None:
        keys = identity_mixing(heads, pseudo_keys)
        mixing = Mixing(mixing.alpha_q, keys.alpha_k, keys.alpha_v, mixing.collapse)
    got = operator(
        q, k, v, *mixing.tensors(),
        causal=causal, window=window, rope_theta=theta, rope_positions=rope_positions or "token",
    )  # fmt: skip
    return largest_error(got, multi_head_attention(q, k, v, causal=causal is not None, window=window, rope_theta=theta))


def pseudo_major_error(pseudo_heads: int = 3, heads: int = 2, tokens: int = 6, select: int = 0) -> float:
    """The inclusion construction under Definition 3 with a causal mask over its *pseudo-major* stack (E13)."""
    layer = random_layer(heads, 8, 4, seed=5)
    x = torch.randn(1, tokens, 8, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    q, k, v = layer.project(x)
    stacked = [t.repeat(1, pseudo_heads, 1, 1) for t in (q, k, v)]  # (B, P*N, H, D), pseudo-head 1 first
    out = multi_head_attention(*stacked, causal=True).unflatten(1, (pseudo_heads, tokens))[:, select]
    return largest_error(out, multi_head_attention(q, k, v, causal=True))


def folded(layer: Layer) -> Layer:
    """P = 1: the mixing folds into the projections, and a per-head R into the values. IHA with P = 1 *is* MHA."""
    assert layer.mixing is not None
    assert layer.mixing.alpha_q.shape[-1] == 1
    alphas = (layer.mixing.alpha_q, layer.mixing.alpha_k, layer.mixing.alpha_v)
    w_q, w_k, w_v = (
        torch.einsum("mh,med->hed", a[:, :, 0], w) for a, w in zip(alphas, layer.parameters()[:3], strict=True)
    )
    return Layer(w_q, w_k, w_v * layer.mixing.collapse[:, 0, None, None])


def folding_error(seed: int = 3) -> float:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    H = 4
    base = random_layer(H, 8, 4, seed)
    mixed = Layer(base.w_q, base.w_k, base.w_v, Mixing(normal(H, H, 1), normal(H, H, 1), normal(H, H, 1), normal(H, 1)))
    x = normal(2, 6, 8)
    return largest_error(mixed(x, causal="virtual"), folded(mixed)(x, causal="virtual"))


def check(seed: int = 0) -> Iterator[Claim]:
    pseudo_head_numbers = (1, 2, 3, 4)
    operators: dict[str, Operator] = {
        "reference": reference.interleaved_head_attention,
        "fast path": interleaved_head_attention,
    }
    for name, operator in operators.items():
        for causal in (None, "token", "virtual"):
            errors = [
                inclusion_error(
                    causal, select, pseudo_heads=P, window=window, rope_positions=rope, operator=operator, seed=seed
                )
                for P in pseudo_head_numbers
                for window in (None, 3)
                for rope in (None, "token")
                # Under virtual causality only the last pseudo-head sees all copies of its own token.
                for select in (range(P) if causal != "virtual" else (P - 1,))
            ]
            reads = "R reads the last pseudo-head" if causal == "virtual" else "R reads any pseudo-head"
            yield holds(
                "superset", f"M ⊆ P_P, {causal or 'no'} causality", WHERE,
                f"{name}: P = 1..4, {reads}, with and without window and token RoPE",
                error=worst(errors), tolerance=MACHINE, erratum="E2" if causal == "virtual" else None,
            )  # fmt: skip
    yield refuted(
        "superset", "reading pseudo-head 1 gives MHA (Algorithm 1, causal)", WHERE,
        "P = 2..4, causal interleaved sequence",
        error=smallest(inclusion_error("virtual", 0, pseudo_heads=P, seed=seed) for P in (2, 3, 4)), at_least=0.05,
        erratum="E2",
    )  # fmt: skip
    virtual_rope = [
        inclusion_error(causal, select, pseudo_heads=P, rope_positions="virtual", seed=seed)
        for causal in (None, "token", "virtual")
        for P in (2, 3)
        for select in range(P)
    ]
    yield refuted(
        "superset", "the construction with RoPE at virtual positions (the proofs exclude positions)", "section 4",
        "P = 2, 3, every mask, every pseudo-head", error=smallest(virtual_rope), at_least=0.01, erratum="E27",
    )  # fmt: skip
    yield refuted(
        "superset", "Definition 3 is equivalent to Algorithm 1", "section 4, Definition 3",
        "causal mask over the pseudo-major stack: pseudo-head 2 sees later tokens", erratum="E13",
        error=pseudo_major_error(select=1), at_least=0.05, condition=pseudo_major_error(select=0) <= MACHINE,
    )  # fmt: skip
    H, P, width, head_dim = 3, 4, 12, 4
    base = random_layer(H, width, head_dim, seed)
    full = Layer(base.w_q, base.w_k, base.w_v, identity_mixing(H, P))
    yield holds(
        "superset", "Q + 4H²P parameters with R of shape (H, HP)", WHERE, f"H = {H}, P = {P}",
        formula=3 * width * H * head_dim + 4 * H * H * P, allocated=full.count(),
    )  # fmt: skip
    yield holds(
        "superset", "P = 1 is a re-parametrisation: P_1 = M with R of shape (H, P)", "(not in the paper)",
        "random mixing folded into the projections", error=folding_error(seed), tolerance=MACHINE,
    )  # fmt: skip
