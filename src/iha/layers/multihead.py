"""Multi-head attention: the baseline, and the global layer of the schedules."""

from typing import Any

from torch import Tensor

from iha.layers.base import SelfAttention
from iha.layers.cache import Cached
from iha.layers.call import Call
from iha.ops.backends.dispatch import BACKENDS
from iha.ops.backends.formula import attend_with_weights
from iha.ops.checks import check_dropout
from iha.ops.decoding import decode_multihead
from iha.ops.inputs import zero_padding
from iha.ops.masking import Masking
from iha.ops.multihead import multihead_attention


class MultiHeadAttention(SelfAttention):
    """Multi-head self-attention (Vaswani et al. 2017), global or in a sliding window, with or without RoPE.

    With `num_kv_heads` < `num_heads`, query heads share KV heads (grouped-query attention). With `num_kv_heads=1` there
    is a single KV head (multi-query attention). The other arguments are those of `iha.InterleavedHeadAttention`.
    """

    takes_dropout = True

    def __init__(
        self, embed_dim: int, num_heads: int, *, backend: str = "auto", dropout: float = 0.0, **options: Any
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        check_dropout(dropout)
        self.dropout = dropout
        if backend not in BACKENDS:
            raise ValueError(f"backend must be one of {BACKENDS}, got {backend!r}")
        self.backend = backend

    def attend(self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call) -> Tensor:
        return multihead_attention(q, k, v, **masking.keywords, backend=call.backend, dropout_p=self.dropout_p)

    def attend_with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call
    ) -> tuple[Tensor, Tensor]:
        q, k, v = zero_padding(masking.key_padding_mask, q, k, v)
        return attend_with_weights(q, k, v, masking, dropout_p=self.dropout_p)

    def decode(self, q: Tensor, cached: Cached, call: Call) -> Tensor:
        return decode_multihead(q, cached.k, cached.v, self.decoding_mask(cached, call))
