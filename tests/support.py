"""What the operator's tests share: random cases, outputs with all gradients, and the rule that judges low precision."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

NAMES = ("q", "k", "v", "alpha_q", "alpha_k", "alpha_v", "collapse")


@dataclass(frozen=True)
class Shape:
    B: int = 2
    N: int = 21
    H: int = 4
    G: int = 2
    P: int = 3
    D: int = 4
    Nq: int | None = None
    full: bool = False
    P_k: int | None = None  # as P when None
    mixed: tuple[int, int] | None = None  # H' and G'; as H and G when None, else R is full

    def __str__(self) -> str:
        return f"B{self.B}-N{self.N}-H{self.H}-G{self.G}-P{self.P}-D{self.D}"


def tensors(shape: Shape, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """q, k, v, three alphas and R, drawn so that scores stay of order one; all asymmetric, all with gradients."""
    B, N, H, G, P, D = shape.B, shape.N, shape.H, shape.G, shape.P, shape.D
    Nq = N if shape.Nq is None else shape.Nq
    heads = [torch.randn(B, n, h, D, dtype=torch.float64) for n, h in ((Nq, H), (N, G), (N, G))]
    P_k, (H_mixed, G_mixed) = shape.P_k or P, shape.mixed or (H, G)
    sizes = ((H, H_mixed, P), (G, G_mixed, P_k), (G, G_mixed, P_k))
    alphas = [torch.randn(size, dtype=torch.float64) / size[0] ** 0.5 for size in sizes]
    collapse = torch.randn(H, H_mixed * P if shape.full or shape.mixed else P, dtype=torch.float64)
    return [t.to(dtype).requires_grad_() for t in (*heads, *alphas, collapse)]


def outputs_and_gradients(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor | None = None, **options: object
) -> dict[str, Tensor]:
    """The output and the gradient of every input, by name, for a random (or this) gradient of the output."""
    inputs = [t.detach().requires_grad_() for t in inputs]
    out = function(*inputs, **options)
    if grad is None:
        grad = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    grads = torch.autograd.grad(out, inputs, grad.to(out.dtype))
    return {"out": out.detach(), **dict(zip(NAMES, grads, strict=False))}


def assert_all_close(got: dict[str, Tensor], want: dict[str, Tensor], tolerance: float = 1e-10) -> None:
    """Largest error of each tensor, relative to that tensor's largest entry (or 1)."""
    assert got.keys() == want.keys()
    for name in want:
        error = (got[name].double() - want[name].double()).abs().max().item()
        bound = tolerance * max(1.0, want[name].abs().max().item())
        assert error <= bound, f"{name}: error {error:.3e} > {bound:.3e}"


def assert_as_good_as_formula(draws: Sequence[tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]]) -> None:
    """FlashAttention's rule: at most twice the error of the plain formula in the same precision.

    Over several draws of (got, formula, exact): the largest error of a small tensor (alpha has a few entries) is one
    draw of chance, so it is judged by its root mean square over all draws; large tensors by the largest error too.
    """
    for name in draws[0][0]:
        got = torch.stack([(g[name].double() - e[name]).flatten() for g, _, e in draws])
        plain = torch.stack([(f[name].double() - e[name]).flatten() for _, f, e in draws])
        ratio = (got.square().mean() / plain.square().mean()).sqrt().item()
        assert ratio <= 2, f"{name}: root mean square error {ratio:.2f} times that of the plain formula"
        if got.shape[1] > 1000:
            ratio = (got.abs().max() / plain.abs().max()).item()
            assert ratio <= 2, f"{name}: largest error {ratio:.2f} times that of the plain formula"
