"""Interleaved Head Attention (arXiv 2602.21371): the mechanism, its theory, its models and its experiments."""

from iha.layers.cache import KVCache
from iha.layers.interleaved import InterleavedHeadAttention
from iha.ops import reference
from iha.ops.interleaved import interleaved_head_attention
from iha.version import __version__

__all__ = ["InterleavedHeadAttention", "KVCache", "__version__", "interleaved_head_attention", "reference"]
