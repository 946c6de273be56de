"""Interleaved Head Attention (arXiv 2602.21371): the mechanism, its theory, its models and its experiments."""

from iha.ops import reference
from iha.ops.interleaved import interleaved_head_attention

__version__ = "0.1.0"
__all__ = ["interleaved_head_attention", "reference"]
