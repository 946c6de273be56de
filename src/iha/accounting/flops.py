"""Costs of whole schedules: the costs that each layer reports (`iha.layers.costs`), summed and compared."""

from collections import Counter
from fractions import Fraction

from iha.accounting.mechanisms import AttentionShape, layer_of
from iha.layers.costs import Flops, Parameters
from iha.layers.schedule import LayerSpec, Schedule


def layer_parameters(shape: AttentionShape, spec: LayerSpec) -> Parameters:
    return layer_of(shape, spec).num_parameters()


def schedule_parameters(shape: AttentionShape, schedule: Schedule) -> Parameters:
    return sum((layer_parameters(shape, spec) for spec in schedule), Parameters(0, 0))


def layer_flops(shape: AttentionShape, spec: LayerSpec, num_tokens: int, convention: str = "exact") -> Flops:
    """FLOPs of one forward pass; for `convention` see `iha.ops.pairs.counted`."""
    return layer_of(shape, spec).flops(num_tokens, convention)


def kernel_flops(
    shape: AttentionShape, spec: LayerSpec, num_tokens: int, tile: tuple[int, int] = (128, 128)
) -> Flops | None:
    """FLOPs that a flash kernel executes; None if no flash kernel can compute this layer."""
    return layer_of(shape, spec).kernel_flops(num_tokens, tile)


def schedule_flops(shape: AttentionShape, schedule: Schedule, num_tokens: int, convention: str = "exact") -> Flops:
    total = Flops(0, 0, 0)
    for spec, layers in Counter(schedule).items():  # a schedule repeats few distinct layers many times
        total += layer_flops(shape, spec, num_tokens, convention) * layers
    return total


def global_attention(depth: int) -> Schedule:
    """The baseline of every ratio: global multi-head attention in all `depth` layers."""
    return (LayerSpec(),) * depth


def ratio_to_global(
    shape: AttentionShape,
    schedule: Schedule,
    num_tokens: int,
    convention: str = "exact",
    parts: tuple[str, ...] = ("attention",),
) -> Fraction:
    """The cost of `parts` in this schedule, divided by their cost in global attention, in the same convention."""
    ours = schedule_flops(shape, schedule, num_tokens, convention)
    theirs = schedule_flops(shape, global_attention(len(schedule)), num_tokens, convention)
    return Fraction(sum(getattr(ours, part) for part in parts), sum(getattr(theirs, part) for part in parts))
