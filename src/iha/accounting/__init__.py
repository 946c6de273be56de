"""What attention costs, by formula: FLOPs, parameters, cache bytes, and the window that makes costs equal."""

from iha.accounting.cache_bytes import layer_cache_bytes, schedule_cache_bytes
from iha.accounting.counter import flop_counter
from iha.accounting.flops import (
    kernel_flops,
    layer_flops,
    layer_parameters,
    ratio_to_global,
    schedule_flops,
    schedule_parameters,
)
from iha.accounting.matching import MatchedWindow, matched_window
from iha.accounting.mechanisms import AttentionShape, layer_of
from iha.layers.costs import Flops, Parameters

__all__ = [
    "AttentionShape",
    "Flops",
    "MatchedWindow",
    "Parameters",
    "flop_counter",
    "kernel_flops",
    "layer_cache_bytes",
    "layer_flops",
    "layer_of",
    "layer_parameters",
    "matched_window",
    "ratio_to_global",
    "schedule_cache_bytes",
    "schedule_flops",
    "schedule_parameters",
]
