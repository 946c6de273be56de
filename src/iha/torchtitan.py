"""The language model under torchtitan, for groups that already train with it. NOT RUN by this project.

    torchtitan's launcher --module iha.torchtitan --config iha_2_4b

torchtitan has no CPU path and follows nightly builds of PyTorch, so no test here runs it; `tests/test_torchtitan.py`
compares what is used below with the installed package, where there is one. Written against its sources of 2026
(ModelSpec, BaseModel, `--module`). The trainer that is tested is `iha train`.
"""

from dataclasses import dataclass
from typing import Any

FLAVOURS = {  # preset and mechanism
    f"{size}-{attention}": (preset, attention)
    for size, preset in (("10m", "10m"), ("160m", "160m"), ("2.4b", "paper-2.4b"))
    for attention in ("iha", "global", "global_local", "talking_heads", "differential")
}
SPEC_FIELDS = {
    "name", "flavor", "model", "parallelize_fn", "pipelining_fn", "post_optimizer_build_fn", "state_dict_adapter",
}  # fmt: skip


def model_spec(flavour: str = "2.4b-iha") -> Any:
    """torchtitan's ModelSpec of one of FLAVOURS."""
    from torchtitan.protocols.model_spec import ModelSpec

    if flavour not in FLAVOURS:
        raise ValueError(f"flavour must be one of {', '.join(FLAVOURS)}, got {flavour!r}")
    return ModelSpec(
        name="iha", flavor=flavour, model=_model_class().Config(flavour=flavour), parallelize_fn=parallelise_for_titan,
        pipelining_fn=None, post_optimizer_build_fn=None, state_dict_adapter=None,
    )  # fmt: skip


def iha_2_4b() -> Any:
    """The paper's pre-training as a torchtitan configuration."""
    from torchtitan.components.lr_scheduler import LRSchedulersContainer
    from torchtitan.components.optimizer import OptimizersContainer
    from torchtitan.config import TrainingConfig
    from torchtitan.trainer import Trainer

    return Trainer.Config(
        model_spec=model_spec("2.4b-iha"),
        optimizer=OptimizersContainer.Config(lr=8e-4),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=1000, decay_type="cosine", min_lr_factor=0.01),
        training=TrainingConfig(local_batch_size=1, seq_len=8192, steps=240_000),
    )


def parallelise_for_titan(model: Any, *, parallel_dims: Any, **_: Any) -> Any:
    """FSDP2 over torchtitan's data-parallel mesh, layer by layer. Mixing needs all heads: no tensor parallelism."""
    from torch.distributed.fsdp import fully_shard

    if parallel_dims.tp_enabled or parallel_dims.cp_enabled or parallel_dims.pp_enabled:
        raise ValueError("iha under torchtitan shards by FSDP2 only: tensor, context and pipeline parallelism are off")
    mesh = parallel_dims.get_mesh("fsdp")
    for layer in model.language_model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _model_class() -> Any:
    from torchtitan.protocols.model import BaseModel

    from iha.models.modeling import IHAForCausalLM
    from iha.models.presets import preset
    from iha.train.flops import training_flops

    class TitanModel(BaseModel):
        @dataclass(kw_only=True, slots=True)
        class Config(BaseModel.Config):
            flavour: str = "2.4b-iha"
            seq_len: int = 8192

            def configuration(self) -> Any:
                name, attention = FLAVOURS[self.flavour]
                return preset(name, attention=attention, max_position_embeddings=self.seq_len)

            def update_from_config(self, *, config: Any, **_: Any) -> None:
                self.seq_len = config.training.seq_len

            def get_nparams_and_flops(self, model: Any, seq_len: int) -> tuple[int, int]:
                count = sum(parameter.numel() for parameter in model.parameters())
                return count, training_flops(self.configuration(), seq_len) // seq_len

        def __init__(self, config: Any) -> None:
            super().__init__()
            self.language_model = IHAForCausalLM(config.configuration())

        def init_states(self, **_: Any) -> None:
            self.language_model.init_weights()

        def verify_module_protocol(self) -> None:
            """Its modules are those of `transformers`."""

        def preprocess_inputs(self, input_dict: dict[str, Any], **_: Any) -> tuple[Any, Any, dict[str, Any]]:
            return input_dict["input"], input_dict["labels"], {}

        def forward(self, tokens: Any, **_: Any) -> Any:
            return self.language_model(input_ids=tokens, use_cache=False).logits

    return TitanModel
