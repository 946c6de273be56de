"""The cache of incremental decoding: keys and values before mixing, keys after RoPE, (B, G, N, D).

Pseudo-heads are a function of the heads, so caching the heads is enough: G KV heads x N tokens. That is the size of a
multi-head cache, and 1/P of a cache of pseudo-heads. RoPE and mixing commute, so keys are rotated once, to their
token's position.

`LayerCache` is what a layer needs from any cache: how many tokens it has seen, the keys and values that new tokens may
attend to, and a way to keep them for later tokens.
"""

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from iha.layers.growth import Room, extended, kept


class Cached(NamedTuple):
    """The tokens that a chunk of queries may attend to, including the chunk itself."""

    k: Tensor  # (B, G, T, D), rotated, un-mixed
    v: Tensor  # (B, G, T, D)
    key_padding_mask: Tensor | None  # (B, T) bool
    document_ids: Tensor | None  # (B, T) int
    first: int  # token index of k[:, :, 0]
    newest: int | Tensor  # token index of the last query; a static cache has unfilled slots after it

    @property
    def num_tokens(self) -> int:
        return self.k.shape[2]

    @property
    def has_unfilled_slots(self) -> bool:
        """Whether there are unfilled slots after the newest token."""
        return not isinstance(self.newest, int) or self.newest + 1 - self.first != self.num_tokens

    @property
    def is_rotated(self) -> bool:
        """Whether unfilled slots move to the front: compiled code must not depend on how many there are."""
        return not isinstance(self.newest, int) and torch.compiler.is_compiling()

    def filled_last(self) -> Tensor:
        """The slots (T,) in the order in which the newest token is the last."""
        filled = self.newest + 1 - self.first
        return (torch.arange(self.num_tokens, device=self.k.device) + filled) % self.num_tokens

    def weights_by_slot(self, weights: Tensor, num_attended: int) -> Tensor:
        """Attention weights (..., N*P_k) over the tokens attended to, as weights over the T slots in their order."""
        if self.is_rotated:
            return weights.unflatten(-1, (self.num_tokens, -1))[..., self.filled_last().argsort(), :].flatten(-2)
        if num_attended == self.num_tokens:
            return weights  # those that the output was computed from, not a copy: they have a gradient
        per_token = weights.shape[-1] // num_attended
        return F.pad(weights, (0, (self.num_tokens - num_attended) * per_token))


class LayerCache(Protocol):
    """Interface of one attention layer's cache. `iha.models.cache` adapts the caches of `transformers` to it."""

    @property
    def num_tokens_seen(self) -> int | Tensor: ...

    def extended(
        self, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, document_ids: Tensor | None
    ) -> Cached: ...

    def keep(self, cached: Cached, reach_back: int | None) -> None: ...


class KVCache:
    """One attention layer's cache. Pass it to every forward of that layer; each forward appends its tokens."""

    def __init__(self) -> None:
        self._kept: Cached | None = None
        self._rooms: tuple[Room | None, Room | None] = (None, None)  # spare memory after keys and values
        self.num_tokens_seen = 0  # N, including tokens dropped since

    @property
    def num_tokens_kept(self) -> int:
        return 0 if self._kept is None else self._kept.num_tokens

    @property
    def num_bytes(self) -> int:
        """Size of the cached keys and values."""
        return 0 if self._kept is None else sum(t.numel() * t.element_size() for t in self._kept[:2])

    def extended(
        self,
        k: Tensor,  # (B, G, Nq, D), of the new tokens
        v: Tensor,
        key_padding_mask: Tensor | None = None,  # (B, Nq) bool, of the new tokens
        document_ids: Tensor | None = None,  # (B, Nq) int
    ) -> Cached:
        """All that the new tokens may attend to. Only `keep` stores it: a refused forward leaves the cache as is."""
        newest = self.num_tokens_seen + k.shape[2] - 1
        new = Cached(k, v, key_padding_mask, document_ids, self.num_tokens_seen, newest)
        old = self._kept
        if old is None:
            return new
        padding, documents = _joined_masks(old, new)
        (k, room_k), (v, room_v) = extended(old.k, k, self._rooms[0]), extended(old.v, v, self._rooms[1])
        self._rooms = room_k, room_v
        return Cached(k, v, padding, documents, old.first, newest)

    def keep(self, cached: Cached, reach_back: int | None) -> None:
        """Store what `extended` returned: the last `reach_back` tokens, which the next token can see; all if None."""
        count = cached.num_tokens if reach_back is None else min(reach_back, cached.num_tokens)
        dropped = cached.num_tokens - count
        k, v = (kept(t, count, room) for t, room in zip(cached[:2], self._rooms, strict=True))
        padding, documents = (None if t is None else t[:, dropped:] for t in cached[2:4])
        assert isinstance(cached.newest, int)
        self._kept = Cached(k, v, padding, documents, cached.first + dropped, cached.newest)
        self.num_tokens_seen = cached.newest + 1

    def reorder(self, sequences: Tensor) -> None:
        """Keep only these sequences of the batch, in this order (beam search)."""
        if self._kept is not None:
            tensors = (None if t is None else t.index_select(0, sequences) for t in self._kept[:4])
            self._kept = Cached(*tensors, *self._kept[4:])  # type: ignore[call-arg,arg-type]

    def check(self, batch: int, document_ids: Tensor | None) -> None:
        """Refuse a chunk that does not continue what the cache holds."""
        old = self._kept
        if old is None:
            return
        if old.k.shape[0] != batch:
            raise ValueError(f"the cache holds {old.k.shape[0]} sequences, cannot append {batch}")
        if (old.document_ids is None) != (document_ids is None):
            raise ValueError("document_ids must be given for every chunk or for none")


def _joined_masks(old: Cached, new: Cached) -> tuple[Tensor | None, Tensor | None]:
    documents = None
    if old.document_ids is not None and new.document_ids is not None:
        documents = torch.cat((old.document_ids, new.document_ids), dim=1)
    if old.key_padding_mask is None and new.key_padding_mask is None:
        return None, documents
    return torch.cat((_padding_of(old), _padding_of(new)), dim=1), documents


def _padding_of(chunk: Cached) -> Tensor:
    if chunk.key_padding_mask is not None:
        return chunk.key_padding_mask
    return torch.ones(chunk.k.shape[0], chunk.num_tokens, dtype=torch.bool, device=chunk.k.device)
