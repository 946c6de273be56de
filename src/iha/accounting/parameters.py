"""How many parameters an attention layer has."""

from dataclasses import dataclass

from iha.accounting.mechanisms import AttentionShape, describe
from iha.layers.schedule import LayerSpec, Schedule


@dataclass(frozen=True)
class Parameters:
    projections: int
    mixing: int  # whatever the mechanism adds to them

    @property
    def total(self) -> int:
        return self.projections + self.mixing


def layer_parameters(shape: AttentionShape, spec: LayerSpec) -> Parameters:
    mechanism = describe(shape, spec)
    queries = shape.num_heads * shape.D
    keys = shape.G * shape.D * mechanism.key_value_sets
    biases = queries + 2 * keys + shape.embed_dim if shape.bias else 0
    return Parameters(2 * shape.embed_dim * (queries + keys) + biases, mechanism.mixing_parameters)


def schedule_parameters(shape: AttentionShape, schedule: Schedule) -> Parameters:
    layers = [layer_parameters(shape, spec) for spec in schedule]
    return Parameters(sum(layer.projections for layer in layers), sum(layer.mixing for layer in layers))
