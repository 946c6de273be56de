"""Multi-head attention: the baseline, and the global layer of the schedules."""

from typing import Any

from torch import Tensor

from iha.layers.base import SelfAttention
from iha.ops.backends.dispatch import BACKENDS
from iha.ops.multihead import multihead_attention


class MultiHeadAttention(SelfAttention):
    """Multi-head self-attention (Vaswani et al. 2017), global or in a sliding window, with or without RoPE.

    `num_kv_heads` < `num_heads` shares key/value heads (grouped-query attention), `num_kv_heads=1` all of them
    (multi-query attention). The other arguments are those of `iha.InterleavedHeadAttention`.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, backend: str = "auto", **options: Any) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if backend not in BACKENDS:
            raise ValueError(f"backend must be one of {BACKENDS}, got {backend!r}")
        self.backend = backend

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, document_ids: Tensor | None
    ) -> Tensor:
        return multihead_attention(
            q, k, v, causal=self.causal, window=self.window, rope_theta=self.rope_theta,
            key_padding_mask=key_padding_mask, document_ids=document_ids, backend=self.backend,
        )  # fmt: skip
