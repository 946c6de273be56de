"""The `flash` backend: the flash attention that torch brings along (`torch.nn.attention.varlen.varlen_attn`), on CUDA.

It takes sequences laid end to end together with their bounds. Padding is left out and every document is a sequence of
its own, so neither needs a mask tensor. Its window and causality apply to virtual tokens.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from iha.ops.backends.case import Case
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility

HOLES = "padding or another document interrupts a document, and a window counts distances; use 'flex' or 'auto'"

_OLDEST = (8, 0)  # compute capability of the A100


def obstacle(case: Case) -> str | None:
    """Why torch's flash attention cannot run this case, or None."""
    if case.device.type != "cuda":
        return f"flash attention runs on CUDA, the tensors are on {case.device.type!r}"
    if torch.version.hip is not None:
        return "torch documents variable-length flash attention for NVIDIA GPUs only, this is an AMD GPU"
    if torch.cuda.is_available() and (found := torch.cuda.get_device_capability(case.device)) < _OLDEST:
        return f"flash attention needs compute capability {_OLDEST} (A100) or newer, this GPU has {found}"
    if case.dtype not in (torch.float16, torch.bfloat16):
        return f"flash attention takes float16 and bfloat16, not {case.dtype}"
    return shape_obstacle(case.visibility, case.head_dim)


def shape_obstacle(visibility: Visibility, head_dim: int) -> str | None:
    """Why no flash kernel can compute this, on any machine, or None."""
    (P_q, P_k), W = visibility.per_token, visibility.window
    if head_dim > 256 or head_dim % 8:
        return f"flash attention takes head widths up to 256 in steps of 8, not {head_dim}"
    if visibility.causal == "token" and P_q != P_k:
        return f"causal='token' with {P_q} pseudo-queries and {P_k} pseudo-keys is a staircase; no flash mask has steps"
    if visibility.causal == "token" and P_q > 1:
        return "causal='token' lets a pseudo-head see later ones of its own token; no flash mask can express that"
    if visibility.causal is None and W is not None and max(P_q, P_k) > 1:
        return f"a two-sided window of {W} tokens starts at token boundaries, a flash window does not"
    return None


def window_size(visibility: Visibility) -> tuple[int, int]:
    """(left, right): keys visible on each side *besides the query's own*, hence the minus one; -1 is no bound.

    Causal is `right = 0`: the function has no other argument for it.
    """
    left = -1 if visibility.window is None else visibility.window * visibility.num_pseudo_heads - 1
    return left, left if visibility.causal is None else 0


class Packed(NamedTuple):
    """How virtual tokens (B, L) are laid end to end as sequences without padding."""

    rows: Tensor | None  # (virtual tokens kept,) into the flattened B*L, in the new order; None keeps all as they are
    bounds: Tensor  # (sequences + 1,) int32
    longest: int  # virtual tokens of the longest sequence


class Packing(NamedTuple):
    queries: Packed
    keys: Packed


def pack(masking: Masking, batch: int, num_queries: int, num_keys: int, device: torch.device) -> Packing | None:
    """The packing of a batch with this many query and key tokens; None if no packing keeps the window's distances.

    The queries are the last of each sequence. The kernel aligns causality at the end, as we do.
    """
    P_q, P_k = masking.visibility.per_token
    if not masking.per_sequence:
        return Packing(_whole(batch, num_queries * P_q, device), _whole(batch, num_keys * P_k, device))
    token, sequence = _documents(masking, batch, num_keys, device)  # of the real tokens, document by document
    same = sequence[1:] == sequence[:-1]
    if masking.visibility.window is not None and bool((same & (token[1:] != token[:-1] + 1)).any()):
        return None
    count = int(sequence[-1]) + 1 if len(sequence) else 0
    b, n = token // num_keys, token % num_keys
    asks = n >= num_keys - num_queries
    query = (b * num_queries + n - (num_keys - num_queries))[asks]
    return Packing(_packed(query, sequence[asks], count, P_q), _packed(token, sequence, count, P_k))


def _documents(masking: Masking, batch: int, num_keys: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The real tokens as indices into the flattened B*N, and the number of the document of each, in rising order."""
    real, document = masking.key_padding_mask, masking.document_ids
    token = torch.arange(batch * num_keys, device=device)
    owner = (token // num_keys)[:, None]  # a sequence is one document unless it says otherwise
    if document is not None:
        owner = torch.cat((owner, document.flatten()[:, None]), dim=1)
    if real is not None:
        token, owner = token[real.flatten()], owner[real.flatten()]
    _, number = owner.unique(dim=0, return_inverse=True) if len(token) else (None, token)
    order = number.argsort(stable=True)  # tokens of a document keep their order
    return token[order], number[order]


def _packed(token: Tensor, sequence: Tensor, count: int, P: int) -> Packed:
    rows = (token[:, None] * P + torch.arange(P, device=token.device)).flatten()
    lengths = P * sequence.bincount(minlength=count)
    bounds = torch.cat((lengths.new_zeros(1), lengths.cumsum(0))).to(torch.int32)
    return Packed(rows, bounds, int(lengths.max()) if count else 0)


def _whole(batch: int, length: int, device: torch.device) -> Packed:
    return Packed(None, torch.arange(0, (batch + 1) * length, length, dtype=torch.int32, device=device), length)


def attend(
    q: Tensor,  # (B, Nq*P_q, H, D)
    k: Tensor,  # (B, N*P_k, G, D)
    v: Tensor,
    visibility: Visibility,
    packing: Packing,
    scale: float,
) -> Tensor:  # (B, Nq*P_q, H, D), zeros where a token is padding
    from torch.nn.attention.varlen import varlen_attn

    queries, keys = packing
    flat_q, flat_k, flat_v = (_select(t, p.rows) for t, p in ((q, queries), (k, keys), (v, keys)))
    if not len(flat_q):  # all queries are padding
        return 0 * q + 0 * (k.sum() + v.sum())
    out = varlen_attn(
        flat_q, flat_k, flat_v, queries.bounds, keys.bounds, queries.longest, keys.longest,
        scale=scale, window_size=window_size(visibility), enable_gqa=q.shape[2] != k.shape[2],
    )  # fmt: skip
    assert isinstance(out, Tensor)
    if queries.rows is None:
        return out.view_as(q)
    return torch.zeros_like(q).flatten(0, 1).index_copy(0, queries.rows, out).view_as(q)


def _select(x: Tensor, rows: Tensor | None) -> Tensor:
    """(B, L, H, D) to (rows, H, D)."""
    flat = x.flatten(0, 1)
    return flat if rows is None else flat.index_select(0, rows)
