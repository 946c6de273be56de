"""Costs of whole schedules: what the layers say of themselves (`iha.layers.costs`), added up and compared."""

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
    """What one forward pass needs; `convention` as of `iha.ops.pairs.counted`."""
    return layer_of(shape, spec).flops(num_tokens, convention)


def kernel_flops(
    shape: AttentionShape, spec: LayerSpec, num_tokens: int, tile: tuple[int, int] = (128, 128)
) -> Flops | None:
    """What a flash kernel executes; None where no such kernel exists."""
    return layer_of(shape, spec).kernel_flops(num_tokens, tile)


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
