"""The `flex` backend: torch's flex_attention with a block mask, for GPUs.

On CPU flex_attention has a forward but no backward (pytorch#169224); use `banded` for training on CPU.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from iha.ops.backends.case import Case
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility

_CPU_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def obstacle(case: Case) -> str | None:
    """Why flex_attention cannot run this case, or None. All its limits are limits of its CPU code."""
    if case.device.type != "cpu":
        return None
    if case.needs_grad:
        return "flex_attention has no backward on CPU; use 'sdpa', 'banded' or 'auto', or torch.no_grad()"
    if case.dtype not in _CPU_DTYPES:
        return f"flex_attention on CPU takes float32, bfloat16 and float16, not {case.dtype}"
    if case.num_queries * case.visibility.num_pseudo_heads == 1:
        return "flex_attention on CPU does not compile for a single query; use 'sdpa', 'banded' or 'auto'"
    if case.per_sequence:
        return "flex_attention on CPU does not compile masks of padding or documents; use 'sdpa', 'banded' or 'auto'"
    return None


def mask_mod(masking: Masking, first_query: int) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The masking as a `mask_mod` of (batch, head, query, key). Query 0 is virtual query `first_query`."""
    visibility, key_padding_mask, document_ids = masking.visibility, masking.key_padding_mask, masking.document_ids
    P_q, P_k = visibility.per_token

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        i = i + first_query
        seen = visibility(i, j)
        if key_padding_mask is not None:
            seen = seen & key_padding_mask[b, i // P_q] & key_padding_mask[b, j // P_k]
        if document_ids is not None:
            seen = seen & (document_ids[b, i // P_q] == document_ids[b, j // P_k])
        return seen if key_padding_mask is None else seen | visibility.is_own(i, j)  # no empty rows, see Masking.tile

    return visible


def attend(
    q: Tensor,  # (B, Nq*P_q, H, D)
    k: Tensor,  # (B, N*P_k, G, D)
    v: Tensor,
    masking: Masking,
    scale: float,
) -> Tensor:  # (B, Nq*P_q, H, D)
    lengths = (q.shape[1], k.shape[1])
    if masking.per_sequence:
        mask = _create_block_mask(
            mask_mod(masking, _first_query(masking.visibility, *lengths)), q.shape[0], *lengths, str(q.device)
        )
    else:
        mask = _shared_block_mask(masking.visibility, *lengths, str(q.device))
    run = _flex_attention()
    # Past dynamo's recompile limit flex_attention silently runs eagerly and materialises all scores: fail instead.
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # (B, H, N*P, D)
        default = scale == q.shape[-1] ** -0.5
        # The compiler treats a number as a constant. Other scales are passed as a tensor to avoid recompilation.
        modify = None if default else _scaled_by(torch.tensor(scale, device=q.device))
        grouped = q.shape[1] != k.shape[1]
        out = run(q, k, v, score_mod=modify, block_mask=mask, scale=scale if default else 1.0, enable_gqa=grouped)
    return out.transpose(1, 2)


def _first_query(visibility: Visibility, query_length: int, key_length: int) -> int:
    """Index of the first virtual query in the whole sequence: the queries belong to its last tokens."""
    P_q, P_k = visibility.per_token
    return key_length // P_k * P_q - query_length


def _scaled_by(scale: Tensor) -> Callable[..., Tensor]:
    def modify(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score * scale

    return modify


@lru_cache(maxsize=64)
def _shared_block_mask(visibility: Visibility, query_length: int, key_length: int, device: str) -> Any:
    rule = mask_mod(Masking(visibility), _first_query(visibility, query_length, key_length))
    return _create_block_mask(rule, None, query_length, key_length, device)


def _create_block_mask(rule: Callable, batch: int | None, query_length: int, key_length: int, device: str) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    # Compiled, the mask is reduced to blocks directly; eagerly, all query_length x key_length booleans are allocated.
    create = create_block_mask if torch.compiler.is_compiling() else _compiled(create_block_mask)
    return create(rule, batch, None, query_length, key_length, device=device)


def _flex_attention() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention if torch.compiler.is_compiling() else _compiled(flex_attention)


@cache
def _compiled(function: Callable[..., Any]) -> Any:
    return torch.compile(function)
