"""Theorem 2, strictness: some IHA layer is not an MHA layer (section 4.1, appendix B.1).

On repeated tokens X = 1 xᵀ every MHA layer is linear in x. The appendix's IHA layer is linear there too, because all
its value rows are equal (E1). With the values of the second pseudo-head negated it computes tanh(⟨q,k⟩/√D)·v.
"""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from iha.ops import reference
from iha.ops.interleaved import interleaved_head_attention
from iha.theory.claims import MACHINE, Claim, holds, largest_error, refuted, worst
from iha.theory.layer import Layer, Mixing, Operator, select_pseudo_head
from iha.theory.superset import random_layer

WHERE = "Theorem 2, section 4.1, appendix B.1"
Construction = Literal["printed", "corrected"]


def signed_mixing(heads: int, pseudo_heads: int, construction: Construction, select: int = 0) -> Mixing:
    """Pseudo-head 1 is +head, pseudo-head 2 is −head in queries and keys; the others have all-zero coefficients.

    "printed" leaves the values of pseudo-head 2 at +head, "corrected" negates them as well.
    """
    eye = torch.eye(heads, dtype=torch.float64)
    alpha = torch.zeros(heads, heads, pseudo_heads, dtype=torch.float64)
    alpha[:, :, 0], alpha[:, :, 1] = eye, -eye
    alpha_v = alpha.clone()
    if construction == "printed":
        alpha_v[:, :, 1] = eye
    return Mixing(alpha, alpha.clone(), alpha_v, select_pseudo_head(heads, pseudo_heads, select))


def repeated(x: Tensor, tokens: int) -> Tensor:
    """(B, E) -> (B, N, E), the same token N times."""
    return x[:, None, :].expand(-1, tokens, -1)


def run(layer: Layer, x: Tensor, *, causal: str | None, operator: Operator) -> Tensor:
    assert layer.mixing is not None
    return operator(*layer.project(x), *layer.mixing.tensors(), causal=causal)  # (B, N, H, D)


def with_mixing(layer: Layer, mixing: Mixing) -> Layer:
    return Layer(layer.w_q, layer.w_k, layer.w_v, mixing)


def additivity_gap(layer: Layer, tokens: int, *, causal: str | None, operator: Operator, seed: int = 0) -> float:
    """max |f(x + y) − f(x) − f(y)| on repeated tokens: zero for a linear map."""
    x, y = inputs(layer, seed)
    fx, fy, fxy = (run(layer, repeated(t, tokens), causal=causal, operator=operator) for t in (x, y, x + y))
    return largest_error(fxy, fx + fy)


def inputs(layer: Layer, seed: int) -> tuple[Tensor, Tensor]:
    width = layer.w_q.shape[1]
    x, y = torch.randn(2, 16, width, generator=torch.Generator().manual_seed(seed + 17), dtype=torch.float64)
    return x, y


def score_and_value(layer: Layer, x: Tensor) -> tuple[Tensor, Tensor]:
    """⟨q,k⟩/√D and v of one token, head by head: (B, H) and (B, H, D)."""
    q, k, v = (t[:, 0] for t in layer.project(x[:, None]))
    return (q * k).sum(-1) / q.shape[-1] ** 0.5, v


def law_error(
    pseudo_heads: int,
    *,
    causal: str | None,
    select: int = 0,
    operator: Operator = reference.interleaved_head_attention,
    tokens: int = 5,
    seed: int = 0,
) -> float:
    """The corrected layer against 2 sinh s / (2 cosh s + P − 2)·v, which is tanh(s)·v for P = 2.

    The P − 2 "deactivated" pseudo-heads have keys of zero: their scores are 0, not −∞, and they stay in the
    denominator (E12). Reading pseudo-head 2, whose query is −q, flips the sign.
    """
    base = random_layer(3, 12, 4, seed)
    layer = with_mixing(base, signed_mixing(3, pseudo_heads, "corrected", select))
    x, _ = inputs(layer, seed)
    s, v = score_and_value(layer, x)
    sign = 1 if select == 0 else -1
    want = sign * (2 * s.sinh() / (2 * s.cosh() + pseudo_heads - 2))[..., None] * v  # (B, H, D)
    got = run(layer, repeated(x, tokens), causal=causal, operator=operator)
    return largest_error(got, want[:, None].expand_as(got))


def check(seed: int = 0) -> Iterator[Claim]:
    ref, fast = reference.interleaved_head_attention, interleaved_head_attention
    base = random_layer(3, 12, 4, seed)
    mha = with_mixing(base, Mixing(*(torch.eye(3, dtype=torch.float64)[:, :, None],) * 3, select_pseudo_head(3, 1)))
    for name, operator in (("reference", ref), ("fast path", fast)):
        gaps = [
            additivity_gap(mha, N, causal=c, operator=operator, seed=seed) for N in (1, 2, 9) for c in (None, "token")
        ]
        yield holds(
            "strictness", "MHA is linear on repeated tokens", WHERE, f"{name}: f(x+y) − f(x) − f(y), N = 1, 2, 9",
            error=worst(gaps), tolerance=MACHINE,
        )  # fmt: skip
        errors = [law_error(2, causal=c, operator=operator, seed=seed) for c in (None, "token")]
        errors.append(law_error(2, causal="virtual", select=1, operator=operator, seed=seed))
        yield holds(
            "strictness", "an IHA layer with P = 2 computes tanh(⟨q,k⟩/√D)·v", WHERE, f"{name}: all three masks",
            error=worst(errors), tolerance=MACHINE, erratum="E1",
        )  # fmt: skip
    corrected = with_mixing(base, signed_mixing(3, 2, "corrected"))
    yield holds(
        "strictness", "M ⊊ P_P: that layer is not linear", WHERE, "additivity gap at least 0.1",
        condition=additivity_gap(corrected, 4, causal=None, operator=ref, seed=seed) > 0.1, erratum="E1",
    )  # fmt: skip
    printed = with_mixing(base, signed_mixing(3, 2, "printed"))
    gap = worst(additivity_gap(printed, 4, causal=c, operator=ref, seed=seed) for c in (None, "token", "virtual"))
    yield refuted(
        "strictness", "the appendix's construction (+V, +V) is nonlinear", "appendix B.1",
        f"its additivity gap is {gap:.1e}: it is linear", condition=gap <= MACHINE, erratum="E1",
    )  # fmt: skip
    laws = [law_error(P, causal=None, seed=seed) for P in (2, 3, 4, 5)]
    yield holds(
        "strictness", "P > 2: 2 sinh s / (2 cosh s + P − 2), nonlinear for every P", "appendix B.1",
        "P = 2..5, unused pseudo-heads at zero", error=worst(laws), tolerance=MACHINE, erratum="E12",
    )  # fmt: skip
    three = with_mixing(base, signed_mixing(3, 3, "corrected"))
    x, _ = inputs(three, seed)
    difference = largest_error(
        run(three, repeated(x, 4), causal=None, operator=ref), run(corrected, repeated(x, 4), causal=None, operator=ref)
    )
    yield refuted(
        "strictness", "zero coefficients deactivate a pseudo-head", "appendix B.1", "P = 3 against P = 2",
        error=difference, at_least=0.05, erratum="E12",
    )  # fmt: skip
