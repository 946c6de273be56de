"""The `flash` backend: the flash-attn package, CUDA only. Its window and causality apply to virtual tokens."""

from importlib.util import find_spec

import torch
from torch import Tensor

from iha.ops.backends.case import Case
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility

_EVERYTHING = (-1, -1)


def obstacle(case: Case) -> str | None:
    """Why flash-attn cannot run this case, or None."""
    if find_spec("flash_attn") is None:
        return "the package flash-attn is not installed (pip install 'iha[gpu]')"
    if case.device.type != "cuda":
        return f"flash-attn runs on CUDA, the tensors are on {case.device.type!r}"
    if case.dtype not in (torch.float16, torch.bfloat16):
        return f"flash-attn takes float16 and bfloat16, not {case.dtype}"
    if reason := shape_obstacle(case.visibility, case.head_dim):
        return reason
    if case.per_sequence and case.num_queries != case.num_keys:
        lengths = f"{case.num_queries} query tokens for {case.num_keys} keys"
        return f"padding or documents with {lengths}; flash needs as many of each"
    return None


def shape_obstacle(visibility: Visibility, head_dim: int) -> str | None:
    """Why no flash kernel can compute this, on any machine, or None."""
    P, W = visibility.num_pseudo_heads, visibility.window
    if head_dim > 256 or head_dim % 8:
        return f"flash-attn takes head widths up to 256 in steps of 8, not {head_dim}"
    if visibility.causal == "token" and P > 1:
        return "causal='token' lets a pseudo-head see later ones of its own token; no flash mask can express that"
    if visibility.causal is None and W is not None and P > 1:
        return f"a two-sided window of {W} tokens starts at token boundaries, a flash window does not"
    return None


def window_size(visibility: Visibility) -> tuple[int, int]:
    """flash-attn's (left, right): keys visible on each side *besides the query's own*, hence the minus one."""
    if visibility.window is None:
        return _EVERYTHING
    left = visibility.window * visibility.num_pseudo_heads - 1
    return (left, 0) if visibility.causal is not None else (left, left)


def attend(
    q: Tensor,  # (B, Nq*P, H, D)
    k: Tensor,  # (B, N*P, G, D)
    v: Tensor,
    masking: Masking,
    scale: float,
) -> Tensor:  # (B, Nq*P, H, D)
    from flash_attn import flash_attn_func, flash_attn_varlen_func  # type: ignore[import-not-found,unused-ignore]

    visibility = masking.visibility
    options = {
        "softmax_scale": scale,
        "causal": visibility.causal is not None,
        "window_size": window_size(visibility),
    }
    if not masking.per_sequence:
        return flash_attn_func(q, k, v, **options)
    order, bounds, longest = segments(masking)
    flat = (t.flatten(0, 1).index_select(0, order) for t in (q, k, v))  # (real virtual tokens, H, D)
    out = flash_attn_varlen_func(*flat, bounds, bounds, longest, longest, **options)
    return torch.zeros_like(q).flatten(0, 1).index_copy(0, order, out).view_as(q)


def segments(masking: Masking) -> tuple[Tensor, Tensor, int]:
    """For flash's variable-length form: the rows to keep, the bounds of the segments, the length of the longest.

    A segment is one document of one sequence. Padded rows are left out. Padding inside a document would therefore
    shorten distances and change what a window covers, so `segments` refuses documents that are not contiguous.
    """
    key_padding_mask, document_ids = masking.key_padding_mask, masking.document_ids
    num_pseudo_heads = masking.visibility.num_pseudo_heads
    mask = document_ids if document_ids is not None else key_padding_mask
    assert mask is not None
    (B, N), device = mask.shape, mask.device
    real = key_padding_mask if key_padding_mask is not None else torch.ones(B, N, dtype=torch.bool, device=device)
    document = document_ids if document_ids is not None else torch.zeros(B, N, dtype=torch.long, device=device)
    sequence = torch.arange(B, device=device)[:, None].expand(B, N)
    token = torch.arange(N, device=device).expand(B, N)[real]
    owner = torch.stack((sequence[real], document[real]), dim=1)  # (real tokens, 2)
    new = torch.ones(len(owner), dtype=torch.bool, device=device)
    new[1:] = (owner[1:] != owner[:-1]).any(dim=1)
    broken = ~new[1:] & (token[1:] != token[:-1] + 1)
    if bool(broken.any()) or len(owner[new].unique(dim=0)) != int(new.sum()):
        raise ValueError("backend='flash' needs padding and documents in contiguous runs; use 'flex' for holes")
    starts = new.nonzero().flatten() * num_pseudo_heads
    end = torch.tensor([len(owner) * num_pseudo_heads], device=device)
    bounds = torch.cat((starts, end)).to(torch.int32)
    rows = real.flatten().repeat_interleave(num_pseudo_heads).nonzero().flatten()
    longest = int(bounds.diff().max()) if len(owner) else 0
    return rows, bounds, longest
