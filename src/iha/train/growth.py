"""Pseudo-heads that are added during training: where, and what AdamW knows of the grown weights.

A place is the pseudo-queries or the pseudo-keys of one layer; growing doubles them and changes no output
(`iha.convert.grow`). The places with the largest gradient grow. Counted is the gradient in those directions that the
layer does not have yet: of R for the new pseudo-queries, and of the difference of two copies of a pseudo-key. One
backward pass of a model in which every place has grown gives all of them, because it computes the same function.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from iha.accounting.flops import ratio_to_global
from iha.convert.grow import grown, with_zeros
from iha.convert.resize import interleaved_layer, require_token_index
from iha.layers.schedule import LayerSpec
from iha.models.configuration import IHAConfig
from iha.models.modeling import IHAForCausalLM
from iha.train.batches import Batch
from iha.train.flops import attention_shape
from iha.train.objective import Objective
from iha.train.parallel import parallelise
from iha.train.recipe import Growth, Recipe
from iha.train.state import MOMENTS
from iha.train.step import gradient

Numbers = dict[int, tuple[int, int]]  # P_q and P_k, by layer


@dataclass(frozen=True)
class Place:
    layer: int
    what: str  # "queries" | "keys"

    def doubled(self, numbers: Numbers) -> Numbers:
        P_q, P_k = numbers[self.layer]
        return numbers | {self.layer: (2 * P_q, P_k) if self.what == "queries" else (P_q, 2 * P_k)}


def check_growth(recipe: Recipe, config: IHAConfig, world: int) -> None:
    """ValueError if this model cannot grow, or not on so many processes."""
    growth, precision = recipe.growth, recipe.parallel.precision
    if growth.every is None:
        return
    if world > 1 or precision == "bfloat16":
        reason = "weights that FSDP2 has sharded cannot grow: one process in float32 or float64 can"
        raise ValueError(f"growth.every is {growth.every}, but {reason}, got {world} in {precision}")
    require_token_index(config)
    if not places(config, numbers_of(config.layers), growth, recipe.data.context):
        limits = f"growth.until {growth.until} and growth.flops {growth.flops}"
        raise ValueError(f"growth.every is {growth.every}, but within {limits} this model has no layer that can grow")


def numbers_of(layers: Iterable[LayerSpec]) -> Numbers:
    """Those of the IHA layers."""
    return {index: spec.per_token for index, spec in enumerate(layers) if spec.is_interleaved}


def places(config: IHAConfig, numbers: Numbers, growth: Growth, num_tokens: int) -> list[Place]:
    """Where a model with these numbers may grow within the limits."""
    found = []
    for layer, what in ((layer, what) for layer in numbers for what in ("queries", "keys")):
        after = Place(layer, what).doubled(numbers)
        if max(after[layer]) <= growth.until and (
            growth.flops is None or cost(config, after, num_tokens) <= growth.flops
        ):
            found.append(Place(layer, what))
    return found


def cost(config: IHAConfig, numbers: Numbers, num_tokens: int) -> float:
    """Attention and mixing of the model with these numbers, in units of global attention in every layer."""
    layers = tuple(
        replace(spec, num_pseudo_heads=numbers[index][0], num_pseudo_keys=numbers[index][1])
        if index in numbers
        else spec
        for index, spec in enumerate(config.layers)
    )
    return float(ratio_to_global(attention_shape(config), layers, num_tokens, parts=("attention", "mixing")))


def gradients(
    model: IHAForCausalLM, where: Iterable[Place], recipe: Recipe, batch: Batch, targets: float
) -> dict[Place, float]:
    """Norm of the gradient of a batch's loss in the new directions of every place."""
    numbers = numbers_of(model.config.layers)
    for place in where:
        numbers = place.doubled(numbers)
    probe = grown(model, numbers).requires_grad_(False)
    for place in where:
        attention = interleaved_layer(probe, place.layer)
        (attention.collapse if place.what == "queries" else attention.alpha_k).requires_grad_(True)
    objective = parallelise(Objective(probe, recipe.parallel.loss_chunk), replace(recipe.parallel, compile=False), None)
    gradient(objective, batch, targets, 1, recipe.parallel.micro_batch)
    return {place: float(_of_new_directions(probe, place)) for place in where}


def _of_new_directions(probe: IHAForCausalLM, place: Place) -> Tensor:
    attention = interleaved_layer(probe, place.layer)
    if place.what == "queries":
        P = attention.num_pseudo_heads
        return attention.collapse.grad.unflatten(-1, (-1, P))[..., P // 2 :].norm()  # type: ignore[union-attr]
    one, other = attention.alpha_k.grad.chunk(2, dim=2)  # type: ignore[union-attr]
    return (one - other).norm() / math.sqrt(2)  # moving both copies together is what the layer could do before


def growths(
    model: IHAForCausalLM, recipe: Recipe, batch: Batch, targets: float
) -> tuple[Numbers, list[dict[str, Any]]]:
    """The numbers after a growth by this batch's gradient, and what grew; nothing if the gradient is not finite."""
    settings, context = recipe.growth, recipe.data.context
    numbers = numbers_of(model.config.layers)
    done: list[dict[str, Any]] = []
    possible = places(model.config, numbers, settings, context)
    asked = gradients(model, possible, recipe, batch, targets) if possible else {}
    if not all(math.isfinite(norm) for norm in asked.values()):
        return numbers, []
    for place, norm in sorted(asked.items(), key=lambda item: -item[1]):
        if len(done) < settings.count and place in places(model.config, numbers, settings, context):
            numbers = place.doubled(numbers)
            done.append({**asdict(place), "number": numbers[place.layer][place.what == "keys"], "gradient": norm})
    return numbers, done


@torch.no_grad()
def carry_over(
    before: tuple[IHAForCausalLM, torch.optim.Optimizer], after: tuple[IHAForCausalLM, torch.optim.Optimizer]
) -> None:
    """AdamW's state for the grown model: that of the weights that were there, zeros for the new ones."""
    olds, mixing = dict(before[0].named_parameters()), _pseudo_heads(before[0])
    for name, parameter in after[0].named_parameters():
        if not parameter.requires_grad:
            continue
        known, state = before[1].state[olds[name]], after[1].state[parameter]
        state["step"].copy_(known["step"])
        for moment in MOMENTS:
            P = mixing.get(name)
            more = 1 if P is None else P * parameter.numel() // olds[name].numel()
            state[moment].copy_(known[moment] if P is None else with_zeros(known[moment], P, more))


def _pseudo_heads(model: IHAForCausalLM) -> Mapping[str, int]:
    """How many the last axis of every mixing weight is of."""
    found: dict[str, int] = {}
    for index, (P_q, P_k) in numbers_of(model.config.layers).items():
        each = {"alpha_q": P_q, "collapse": P_q, "alpha_k": P_k, "alpha_v": P_k}
        found |= {f"model.layers.{index}.self_attn.{name}": P for name, P in each.items()}
    return found
