"""Four ways to mix heads into pseudo-heads, forward and with backward: why `iha.ops.mixing` uses an explicit bmm.

python benchmarks/mixing.py
"""

from collections.abc import Callable

import torch
from torch import Tensor

from iha.bench.measure import take_turns
from iha.ops.mixing import mix, mixing_rows

N, H, D = 4096, 8, 64


def by_bmm(x: Tensor, alpha: Tensor) -> Tensor:
    return mix(x, alpha)


def by_matmul(x: Tensor, alpha: Tensor) -> Tensor:
    return torch.matmul(mixing_rows(alpha), x).view(1, -1, H, D)


def by_einsum(x: Tensor, alpha: Tensor) -> Tensor:
    return torch.einsum("mhp,bnmd->bnphd", alpha, x).reshape(1, -1, H, D)


def by_one_product(x: Tensor, alpha: Tensor) -> Tensor:
    """(P*H, H) by (H, N*D), transposed there and back."""
    wide = mixing_rows(alpha) @ x.view(N, H, D).transpose(0, 1).reshape(H, N * D)
    return wide.view(-1, N, D).transpose(0, 1).reshape(1, -1, H, D)


def main() -> None:
    torch.manual_seed(0)
    for P in (2, 4):
        x = torch.randn(1, N, H, D, requires_grad=True)
        alpha = torch.randn(H, H, P, requires_grad=True)
        grad = torch.randn(1, N * P, H, D)

        def step(function: Callable[[Tensor, Tensor], Tensor], x=x, alpha=alpha, grad=grad) -> Callable[[], object]:
            return lambda: torch.autograd.grad(function(x, alpha), (x, alpha), grad)

        def forward(function: Callable[[Tensor, Tensor], Tensor], x=x, alpha=alpha) -> Callable[[], object]:
            return lambda: function(x.detach(), alpha.detach())

        ways = (by_bmm, by_matmul, by_einsum, by_one_product)
        times = take_turns({f.__name__: forward(f) for f in ways}, 9)
        both = take_turns({f.__name__: step(f) for f in ways}, 9)
        for name in times.rounds:
            ms = [1e3 * measured.best(name) for measured in (times, both)]
            print(f"P = {P}  {name:15}  {ms[0]:6.1f} ms forward  {ms[1]:6.1f} ms with backward")


if __name__ == "__main__":
    main()
