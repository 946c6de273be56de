"""The core of a FLOP-matched sliding window on CPU, cut in several ways, as ratios to causal SDPA on the N tokens.

Forward: query blocks over overlapping strided views in one call, or one call a block. Backward: by query blocks or by
key blocks, in one call over strided views (expanded gradients, not even added up) or in a loop (sums included).

    python benchmarks/band.py
"""

from collections.abc import Callable

import torch
from torch import Tensor

from iha.bench.measure import take_turns
from iha.ops.backends.kernels import attend_tile_backward
from iha.ops.backends.tiles import Tiling, backward_tiles, forward_tiles
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility

N, H, D, SCALE = 4096, 8, 64, 0.125
Steps = dict[str, Callable[[], object]]


def views(x: Tensor, length: int, step: int) -> Tensor:
    """(L, H, D) to overlapping (blocks, H, length, D), without a copy."""
    return x.unfold(0, length, step).mT


def mask(rows: int, columns: int, first_row: int, reach: int) -> Tensor:
    i, j = torch.arange(rows)[:, None] + first_row, torch.arange(columns)
    return torch.zeros(rows, columns).masked_fill_((j > i) | (i - j >= reach), -torch.inf)


def tiling(P: int, window: int, query_rows: int, key_rows: int, inside: bool = True) -> Tiling:
    """The engine's own, with other block sizes; one call a block if nothing counts as inside."""
    made = Tiling(Masking(Visibility("virtual", window, P)), (0, N), (0, N), batch=1)
    made.query_block, made.key_block = query_rows // P, key_rows // P
    if not inside:
        made.is_inside = lambda queries: False  # type: ignore[method-assign]
    return made


def main() -> None:
    torch.manual_seed(0)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    base = [torch.randn(1, N, H, D).transpose(1, 2) for _ in range(4)]
    base_out, base_lse = flash(*base[:3], 0.0, True)
    for P in (2, 4):
        W = N // (2 * P * P)
        reach = W * P
        q, k, v, grad = (torch.randn(1, N * P, H, D) for _ in range(4))
        out, lse = forward_tiles(q, k, v, tiling(P, W, reach // 8, 128), SCALE)
        forward: Steps = {"SDPA": lambda: flash(*base[:3], 0.0, True)}
        backward: Steps = {"SDPA": lambda: flash_backward(base[3], *base[:3], base_out, base_lse, 0.0, True)}
        for b in (reach // 16, reach // 8, reach // 4, reach // 2):
            for inside in (True, False):
                cut = tiling(P, W, b, 128, inside)
                name = f"query blocks of {b}, {'one call' if inside else 'a loop'}"
                forward[name] = lambda cut=cut, q=q, k=k, v=v: forward_tiles(q, k, v, cut, SCALE)
            q_blocks, g_blocks, o_blocks = (t[0, reach:].unflatten(0, (-1, b)).transpose(1, 2) for t in (q, grad, out))
            l_blocks = lse[0, reach:].unflatten(0, (-1, b)).transpose(1, 2)
            k_views, v_views = (views(t[0], b + reach, b) for t in (k, v))
            by_query = (
                g_blocks,
                q_blocks,
                k_views,
                v_views,
                o_blocks,
                l_blocks,
                mask(b, b + reach, reach, reach),
                SCALE,
            )
            backward[f"query blocks of {b}, one call"] = lambda t=by_query: attend_tile_backward(*t)
            k_blocks, v_blocks = (t[0, : N * P - reach].unflatten(0, (-1, b)).transpose(1, 2) for t in (k, v))
            g_views, q_views, o_views = (views(t[0], b + reach, b) for t in (grad, q, out))
            l_views = lse[0].unfold(0, b + reach, b)
            by_key = (g_views, q_views, k_blocks, v_blocks, o_views, l_views, mask(b + reach, b, 0, reach), SCALE)
            backward[f"key blocks of {b}, one call"] = lambda t=by_key: attend_tile_backward(*t)
            cut = tiling(P, W, 128, b)
            tensors = (grad, q, k, v, out, lse, cut, SCALE)
            backward[f"key blocks of {b}, a loop"] = lambda t=tensors: backward_tiles(*t)
        for direction, sides in (("forward", forward), ("backward", backward)):
            times = take_turns(sides, 6)
            for name in sides:
                print(f"P = {P}  {direction:8}  {name:32}  {times.ratio(name, 'SDPA'):.2f}")


if __name__ == "__main__":
    main()
