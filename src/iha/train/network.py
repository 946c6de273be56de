"""The model of a run with its optimiser: what a step changes and what a checkpoint holds. Its pseudo-heads may grow."""

from typing import Any

import torch
from torch import Tensor

from iha.convert.grow import grown
from iha.layers.schedule import LayerSpec
from iha.models.configuration import IHAConfig
from iha.models.modeling import IHAForCausalLM
from iha.train import state as training_state
from iha.train.batches import Batch
from iha.train.build import changed_config
from iha.train.flops import training_flops
from iha.train.growth import Numbers, carry_over, growths, numbers_of
from iha.train.objective import Objective
from iha.train.optimise import build_optimiser
from iha.train.parallel import Processes, mesh_of, parallelise
from iha.train.recipe import Recipe


class Network:
    def __init__(self, model: IHAForCausalLM, recipe: Recipe, group: Processes) -> None:
        self.recipe, self.group = recipe, group
        self._adopt(model)

    def _adopt(self, model: IHAForCausalLM) -> None:
        """Train this model from now on, with a new optimiser."""
        recipe, group = self.recipe, self.group
        self.flops = training_flops(model.config, recipe.data.context) * recipe.data.batch  # of a step
        mesh = mesh_of(recipe.parallel, group.world, group.device.type)
        objective = parallelise(Objective(model, recipe.parallel.loss_chunk), recipe.parallel, mesh)
        self.objective = objective.train()  # loaded weights come in evaluation mode
        self.optimiser = build_optimiser(self.model, recipe.optimiser)
        training_state.initialise(self.optimiser)

    @property
    def model(self) -> IHAForCausalLM:
        return self.objective.model

    @property
    def config(self) -> IHAConfig:
        """Of the weights as they are now, for the run directory."""
        return changed_config(self.model.config, use_cache=True)

    def grow(self, numbers: Numbers) -> None:
        """To these numbers of pseudo-queries and pseudo-keys; the function stays the same."""
        if numbers != numbers_of(self.model.config.layers):
            before = self.model, self.optimiser
            self._adopt(grown(self.model, numbers))
            carry_over(before, (self.model, self.optimiser))

    def grow_where_asked(self, batch: Batch, targets: float) -> list[dict[str, Any]]:
        """By the gradient of this batch. Returns what has grown."""
        with torch.random.fork_rng():  # what the step after it drops does not depend on growth
            numbers, found = growths(self.model, self.recipe, batch, targets)
        self.grow(numbers)
        return found

    def tensors(self) -> dict[str, Tensor]:
        """The live tensors of a checkpoint, by name."""
        return training_state.tensors(self.model, self.optimiser)

    def tensors_of(self, state: dict[str, Any]) -> dict[str, Tensor]:
        """The same, grown to the layers of a checkpoint's state, to load the checkpoint into."""
        if "layer_schedule" in state:  # checkpoints before there was growth have none
            self.grow(numbers_of(LayerSpec(**layer) for layer in state["layer_schedule"]))
        return self.tensors()
