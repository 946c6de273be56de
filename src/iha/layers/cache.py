"""The cache of incremental decoding: keys and values before mixing and before RoPE.

Pseudo-heads are a function of the heads, so caching the heads is enough: G heads x N tokens, the size of a plain cache
and 1/P of one that held pseudo-heads. RoPE is relative, so it may be applied on reading, counted from the first token
that is kept; a sliding-window layer can then drop old tokens without remembering where it was.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Cached(NamedTuple):
    """What a chunk of queries may look at: everything kept, the chunk itself last."""

    k: Tensor  # (B, T, G, D)
    v: Tensor  # (B, T, G, D)
    key_padding_mask: Tensor | None  # (B, T) bool
    document_ids: Tensor | None  # (B, T) int

    def each(self, change: Callable[[Tensor], Tensor]) -> "Cached":
        padding, documents = (t if t is None else change(t) for t in self[2:])
        return Cached(change(self.k), change(self.v), padding, documents)


class KVCache:
    """One attention layer's cache. Pass it to every forward of that layer; it grows by the tokens of each."""

    def __init__(self) -> None:
        self._kept: Cached | None = None
        self.num_tokens_seen = 0  # N, dropped ones included

    @property
    def num_tokens_kept(self) -> int:
        return 0 if self._kept is None else self._kept.k.shape[1]

    @property
    def num_bytes(self) -> int:
        """Of the keys and values."""
        return 0 if self._kept is None else sum(t.numel() * t.element_size() for t in self._kept[:2])

    def append(
        self,
        k: Tensor,  # (B, Nq, G, D), of the new tokens
        v: Tensor,
        key_padding_mask: Tensor | None = None,  # (B, Nq) bool, of the new tokens
        document_ids: Tensor | None = None,  # (B, Nq) int
        keep: int | None = None,
    ) -> Cached:
        """Add the new tokens and return all that they may see. `keep` bounds what the *next* tokens will need."""
        new = Cached(k, v, key_padding_mask, document_ids)
        everything = new if self._kept is None else _joined(self._kept, new)
        self.num_tokens_seen += k.shape[1]
        first = 0 if keep is None else max(0, everything.k.shape[1] - keep)
        # A slice would keep the memory of the dropped tokens alive.
        self._kept = everything if first == 0 else everything.each(lambda t: t[:, first:].clone())
        return everything

    def reorder(self, sequences: Tensor) -> None:
        """Keep these sequences, in this order (beam search)."""
        if self._kept is not None:
            self._kept = self._kept.each(lambda t: t.index_select(0, sequences))


def _joined(old: Cached, new: Cached) -> Cached:
    def tokens_of(t: Tensor) -> tuple[int, ...]:
        return (t.shape[0], *t.shape[2:])

    if tokens_of(old.k) != tokens_of(new.k):
        raise ValueError(f"the cache holds keys of shape {tuple(old.k.shape)}, cannot append {tuple(new.k.shape)}")
    if (old.document_ids is None) != (new.document_ids is None):
        raise ValueError("document_ids must be given for every chunk or for none")
    documents = None
    if old.document_ids is not None and new.document_ids is not None:
        documents = torch.cat((old.document_ids, new.document_ids), dim=1)
    padding = None
    if old.key_padding_mask is not None or new.key_padding_mask is not None:
        padding = torch.cat((_padding_of(old), _padding_of(new)), dim=1)
    return Cached(torch.cat((old.k, new.k), dim=1), torch.cat((old.v, new.v), dim=1), padding, documents)


def _padding_of(chunk: Cached) -> Tensor:
    if chunk.key_padding_mask is not None:
        return chunk.key_padding_mask
    return torch.ones(chunk.k.shape[:2], dtype=torch.bool, device=chunk.k.device)
