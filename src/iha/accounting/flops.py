"""FLOPs of a layer's forward pass over one sequence of N tokens, by formula.

A backward pass costs twice the forward again; a flash kernel's, which computes the scores once more, 2.5 times.
"""

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction

from iha.accounting.mechanisms import AttentionShape, describe
from iha.accounting.pairs import counted, touched
from iha.accounting.parameters import layer_parameters
from iha.layers.schedule import LayerSpec, Schedule
from iha.ops.visibility import Visibility


@dataclass(frozen=True)
class Flops:
    projections: int  # to q, k and v, and of the output
    mixing: int  # what the mechanism adds: alpha and R, mixed logits, convolutions, …
    attention: int  # scores, and sums of values

    @property
    def total(self) -> int:
        return self.projections + self.mixing + self.attention

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.projections + other.projections, self.mixing + other.mixing, self.attention + other.attention)

    def __mul__(self, times: int) -> "Flops":
        return Flops(self.projections * times, self.mixing * times, self.attention * times)


def layer_flops(shape: AttentionShape, spec: LayerSpec, num_tokens: int, convention: str = "exact") -> Flops:
    """What is needed: the pairs that the mask lets through, counted as `convention` says (`pairs.counted`)."""
    mechanism, rule = describe(shape, spec), shape.visibility(spec)
    pairs = counted(rule, num_tokens, 1, convention)
    attention = mechanism.attention_per_pair * pairs
    if mechanism.attention_per_triple:
        attention += mechanism.attention_per_triple * counted(rule, num_tokens, 2, convention)
    if mechanism.attention_per_key_pair:
        attention += mechanism.attention_per_key_pair * _key_pairs(rule, num_tokens, convention)
    mixing = mechanism.mixing_per_token * num_tokens + mechanism.mixing_per_pair * pairs
    return Flops(_projections(shape, spec) * num_tokens, round(mixing), round(attention))


def kernel_flops(
    shape: AttentionShape, spec: LayerSpec, num_tokens: int, tile: tuple[int, int] = (128, 128)
) -> Flops | None:
    """What a flash kernel executes: whole tiles, at the widths it can take; None where no such kernel exists."""
    mechanism = describe(shape, spec)
    if mechanism.flash_obstacle is not None:
        return None
    per_pair = mechanism.kernel_per_pair or mechanism.attention_per_pair
    attention = per_pair * touched(shape.visibility(spec), num_tokens, tile)
    return Flops(_projections(shape, spec) * num_tokens, mechanism.mixing_per_token * num_tokens, attention)


def schedule_flops(shape: AttentionShape, schedule: Schedule, num_tokens: int, convention: str = "exact") -> Flops:
    total = Flops(0, 0, 0)
    for spec, layers in Counter(schedule).items():  # few kinds of layers, many of each
        total += layer_flops(shape, spec, num_tokens, convention) * layers
    return total


def global_attention(depth: int) -> Schedule:
    """What everything is measured against: as many layers of global multi-head attention."""
    return (LayerSpec(),) * depth


def ratio_to_global(
    shape: AttentionShape,
    schedule: Schedule,
    num_tokens: int,
    convention: str = "exact",
    parts: tuple[str, ...] = ("attention",),
) -> Fraction:
    """The cost of a schedule over that of global multi-head attention, both counted alike, of these parts."""
    ours = schedule_flops(shape, schedule, num_tokens, convention)
    theirs = schedule_flops(shape, global_attention(len(schedule)), num_tokens, convention)
    return Fraction(sum(getattr(ours, part) for part in parts), sum(getattr(theirs, part) for part in parts))


def _projections(shape: AttentionShape, spec: LayerSpec) -> int:
    """Per token. A bias is an addition only, and not counted."""
    return 2 * layer_parameters(replace(shape, bias=False), spec).projections


def _key_pairs(rule: Visibility, num_tokens: int, convention: str) -> Fraction:
    """(key, key) pairs that some query sees both of: all of them, or those that fit into one window."""
    W = rule.clipped(num_tokens).window
    width = None if W is None else W if rule.causal is not None else 2 * W - 1
    return counted(Visibility(None, width), num_tokens, 1, convention)
