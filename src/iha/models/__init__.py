"""The language model under the contract of `transformers`. Importing this registers it with the Auto classes."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from iha.models.configuration import IHAConfig
from iha.models.modeling import IHAForCausalLM, IHAModel, IHAPreTrainedModel
from iha.models.presets import PRESETS, preset

AutoConfig.register(IHAConfig.model_type, IHAConfig, exist_ok=True)
AutoModel.register(IHAConfig, IHAModel, exist_ok=True)
AutoModelForCausalLM.register(IHAConfig, IHAForCausalLM, exist_ok=True)

__all__ = ["PRESETS", "IHAConfig", "IHAForCausalLM", "IHAModel", "IHAPreTrainedModel", "preset"]
