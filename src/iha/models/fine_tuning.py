"""LoRA (PEFT) that trains alpha and R as well as the projections.

Alpha and R are parameters, not modules: `modules_to_save=["alpha_q", ...]` would match nothing and train nothing. PEFT
reaches them through `target_parameters`. Rank P is enough for any update: per source head, alpha_q is an H × P matrix.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import PreTrainedModel

from iha.models.configuration import IHAConfig

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel

MIXING = ("alpha_q", "alpha_k", "alpha_v", "collapse")


def lora_config(
    config: IHAConfig,
    r: int = 8,
    *,
    target_modules: Sequence[str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    **options: Any,
) -> "LoraConfig":
    """A `LoraConfig` for these projections and for alpha and R of every IHA layer; `options` go to PEFT."""
    from peft import LoraConfig

    P = max((max(spec.per_token) for spec in config.layers if spec.is_interleaved), default=0)
    if P == 0:
        raise ValueError("no layer of this model has alpha and R to train: its layer_schedule has no 'iha'")
    if r < P:
        raise ValueError(f"r={r} cannot express every alpha: with {P} pseudo-heads it must be at least {P}")
    return LoraConfig(
        r=r, target_modules=list(target_modules), target_parameters=list(MIXING),
        **{"task_type": "CAUSAL_LM", **options},
    )  # fmt: skip


def merge_lora(model: "PeftModel") -> PreTrainedModel:
    """The model with the adapter merged into its weights, without PEFT's wrappers.

    PEFT's `merge_and_unload` merges alpha and R, but leaves the adapters of projections in the same layers unmerged.
    The logits are then right, but the tensor names are not. Here those adapters are merged too.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    merged: Any = model.merge_and_unload()
    for name, module in list(merged.named_modules()):
        if isinstance(module, BaseTunerLayer):
            module.merge()
            parent, _, child = name.rpartition(".")
            base = module.get_base_layer()
            assert isinstance(base, nn.Module)
            setattr(merged.get_submodule(parent), child, base)
    return merged
