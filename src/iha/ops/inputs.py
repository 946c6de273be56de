"""The first steps that all mechanisms share: autocast, checks, padding, RoPE and grouped heads.

Throughout, q is (B, Nq, H, D) and holds the last Nq of the N tokens. Keys and values are (B, N, G, ...); G divides H.
"""

import torch
from torch import Tensor

from iha.ops.checks import check_masking, check_options
from iha.ops.masking import Masking
from iha.ops.rotary import rotate


def check(
    q: Tensor,
    keys: dict[str, Tensor],  # by name: everything that has one row per key token
    masking: Masking,
    *,
    rope_theta: float | None,
    scale: float | None,
    backend: str,
) -> None:
    """Raise a ValueError that names the offending value if the mechanisms cannot take these arguments."""
    first = next(iter(keys.values()))
    for name, tensor in {"q": q, **keys}.items():
        if tensor.dim() != 4:
            raise ValueError(f"{name} must be (B, N, heads, D), got shape {tuple(tensor.shape)}")
        if tensor.dtype != q.dtype or not tensor.is_floating_point():
            raise ValueError(f"all tensors must have one floating dtype: q has {q.dtype}, {name} has {tensor.dtype}")
        if name != "q" and tensor.shape[:2] != first.shape[:2]:
            raise ValueError(f"keys and values must have the same B and N: {_shapes(keys)}")
    if q.shape[0] != first.shape[0] or q.shape[3] != first.shape[3]:
        raise ValueError(f"q and the keys must have the same B and D: q {tuple(q.shape)}, {_shapes(keys)}")
    if any(size < 1 for size in (*q.shape, *first.shape)) or q.shape[1] > first.shape[1]:
        raise ValueError(f"need at least one query, no more queries than keys: q {tuple(q.shape)}, {_shapes(keys)}")
    if q.shape[2] % first.shape[2]:
        raise ValueError(f"the k/v heads must divide the heads: {first.shape[2]} k/v heads, {q.shape[2]} heads")
    check_options(rope_theta, "token", scale, backend, q.shape[-1])
    check_masking(masking, first)


def prepare(
    q: Tensor,
    keys: dict[str, Tensor],
    rotated: tuple[str, ...],  # names of the tensors in `keys` that RoPE rotates, besides q
    masking: Masking,
    *,
    rope_theta: float | None,
    scale: float | None,
    backend: str = "auto",
) -> tuple[float, Tensor, list[Tensor]]:
    """Check the arguments; return the scale, q and the keys in order, zeroed at padding and rotated by RoPE."""
    q, *cast = as_autocast(q, *keys.values())
    keys = dict(zip(keys, cast, strict=True))
    check(q, keys, masking, rope_theta=rope_theta, scale=scale, backend=backend)
    q, *zeroed = zero_padding(masking.key_padding_mask, q, *keys.values())
    keys = dict(zip(keys, zeroed, strict=True))
    q, *done = rotate_tokens(rope_theta, q, *(keys[name] for name in rotated))
    keys.update(zip(rotated, done, strict=True))
    return q.shape[-1] ** -0.5 if scale is None else scale, q, list(keys.values())


def check_chunk(chunk: int | None) -> None:
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1 query or None, got {chunk}")


def as_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast to autocast's dtype if autocast is enabled, as torch does for its own attention; float64 stays float64."""
    device = tensors[0].device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(t if t.dtype == torch.float64 else t.to(dtype) for t in tensors)


def zero_padding(key_padding_mask: Tensor | None, q: Tensor, *keys: Tensor) -> tuple[Tensor, ...]:
    """q and the keys with zeros at padded tokens. A mask alone would not stop NaN, because 0 * NaN is NaN."""
    if key_padding_mask is None:
        return q, *keys
    padding = ~key_padding_mask[:, :, None, None]  # (B, N, 1, 1)
    q = q.masked_fill(padding[:, -q.shape[1] :], 0)
    return q, *(t.masked_fill(padding, 0) for t in keys)


def rotate_tokens(rope_theta: float | None, q: Tensor, *keys: Tensor) -> tuple[Tensor, ...]:
    """Apply RoPE at token positions, counted from the first key. Without a rope_theta, return the tensors unchanged."""
    if rope_theta is None:
        return q, *keys
    positions = torch.arange(keys[0].shape[1], device=q.device)  # (N,)
    return rotate(q, positions[-q.shape[1] :], rope_theta), *(rotate(t, positions, rope_theta) for t in keys)


def repeat_heads(x: Tensor, num_heads: int) -> Tensor:
    """Repeat KV heads, (B, N, G, D) to (B, N, H, D): query head h reads KV head h*G // H."""
    G = x.shape[2]
    return x if num_heads == G else x.repeat_interleave(num_heads // G, dim=2)


def _shapes(tensors: dict[str, Tensor]) -> str:
    return ", ".join(f"{name} {tuple(t.shape)}" for name, t in tensors.items())
