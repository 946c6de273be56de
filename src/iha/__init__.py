"""Interleaved Head Attention (arXiv 2602.21371): the mechanism, its theory, its models and its experiments."""

from iha.layers.cache import KVCache
from iha.layers.interleaved import InterleavedHeadAttention
from iha.ops import reference
from iha.ops.interleaved import interleaved_head_attention

__version__ = "0.1.0"
__all__ = ["InterleavedHeadAttention", "KVCache", "interleaved_head_attention", "reference"]
