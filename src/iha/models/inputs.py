"""Padding and documents, derived from the masks and positions of `transformers`."""

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Cache


def padding_of(attention_mask: Tensor | None, inputs_embeds: Tensor, cache: Cache | None) -> Tensor | None:
    """(B, tokens so far) bool, True = a real token; None without padding."""
    if attention_mask is None:
        return None
    if attention_mask.dim() != 2:
        raise ValueError(
            f"attention_mask must be (B, tokens so far) with 0 for padding, got shape {tuple(attention_mask.shape)}: "
            "4-D masks (prefix-LM, tree decoding) are not supported, packed documents go by document_ids"
        )
    if torch.compiler.is_compiling():
        return attention_mask.bool()  # compiled code must not branch on data, here on whether all tokens are real
    B, N = inputs_embeds.shape[:2]
    length = N + (0 if cache is None else int(cache.get_seq_length()))
    if attention_mask.shape[0] != B or attention_mask.shape[1] < length:
        raise ValueError(
            f"attention_mask must be (B, tokens so far) = ({B}, {length}), got {tuple(attention_mask.shape)}"
        )
    if bool(attention_mask.all()):
        return None
    room = 0 if cache is None or not cache.is_compileable else cache.get_max_length() - attention_mask.shape[1]
    # A static cache is read as a whole, unfilled slots included.
    return F.pad(attention_mask.bool(), (0, max(0, room)), value=True)


def documents_of(position_ids: Tensor | None) -> Tensor | None:
    """Document ids (B, N) of packed documents; a new one starts where positions restart. None if they never do."""
    if position_ids is None or position_ids.shape[1] < 2:
        return None
    starts = position_ids.diff(dim=1, prepend=position_ids[:, :1] - 1) != 1  # (B, N)
    if not torch.compiler.is_compiling() and not bool(starts.any()):
        return None
    return starts.cumsum(dim=1)


def documents_of_lengths(cu_seq_lens: Tensor | None, inputs_embeds: Tensor) -> Tensor | None:
    """Document ids (1, N) of a flattened batch, from the cumulative lengths that FlashAttention takes."""
    if cu_seq_lens is None:
        return None
    B, N = inputs_embeds.shape[:2]
    if B != 1 or cu_seq_lens.dim() != 1:
        raise ValueError(
            f"cu_seq_lens_q are for a flattened batch: need one row and (documents + 1,) lengths, got {B} rows and "
            f"shape {tuple(cu_seq_lens.shape)}"
        )
    tokens = torch.arange(N, device=inputs_embeds.device)
    return torch.searchsorted(cu_seq_lens.to(tokens.device, tokens.dtype), tokens, right=True).unsqueeze(0)
