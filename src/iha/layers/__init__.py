"""Attention mechanisms as nn.Module, one file per mechanism, one interface (`SelfAttention`)."""

from iha.layers.base import SelfAttention
from iha.layers.cache import KVCache
from iha.layers.cross import InterleavedCrossAttention, MultiHeadCrossAttention
from iha.layers.differential import DifferentialAttention
from iha.layers.interleaved import InterleavedHeadAttention
from iha.layers.knocking_heads import KnockingHeadsAttention
from iha.layers.multi_token import MultiTokenAttention
from iha.layers.multihead import MultiHeadAttention
from iha.layers.paired_heads import PairedHeadsAttention
from iha.layers.schedule import LayerSpec, named_schedule
from iha.layers.simplicial import SimplicialAttention
from iha.layers.strassen import StrassenAttention
from iha.layers.talking_heads import TalkingHeadsAttention

__all__ = [
    "DifferentialAttention",
    "InterleavedCrossAttention",
    "InterleavedHeadAttention",
    "KVCache",
    "KnockingHeadsAttention",
    "LayerSpec",
    "MultiHeadAttention",
    "MultiHeadCrossAttention",
    "MultiTokenAttention",
    "PairedHeadsAttention",
    "SelfAttention",
    "SimplicialAttention",
    "StrassenAttention",
    "TalkingHeadsAttention",
    "named_schedule",
]
