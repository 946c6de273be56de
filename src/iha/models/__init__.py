"""The language model, as a `transformers` model. Importing this package registers it with the Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from iha.models.configuration import IHAConfig
from iha.models.fine_tuning import lora_config, merge_lora
from iha.models.heads import IHAForQuestionAnswering, IHAForSequenceClassification, IHAForTokenClassification
from iha.models.loading import load_strict
from iha.models.modeling import IHAForCausalLM, IHAModel, IHAPreTrainedModel
from iha.models.presets import PRESETS, preset

AutoConfig.register(IHAConfig.model_type, IHAConfig, exist_ok=True)
AutoModel.register(IHAConfig, IHAModel, exist_ok=True)
AutoModelForCausalLM.register(IHAConfig, IHAForCausalLM, exist_ok=True)
AutoModelForSequenceClassification.register(IHAConfig, IHAForSequenceClassification, exist_ok=True)
AutoModelForTokenClassification.register(IHAConfig, IHAForTokenClassification, exist_ok=True)
AutoModelForQuestionAnswering.register(IHAConfig, IHAForQuestionAnswering, exist_ok=True)

__all__ = [
    "PRESETS",
    "IHAConfig",
    "IHAForCausalLM",
    "IHAForQuestionAnswering",
    "IHAForSequenceClassification",
    "IHAForTokenClassification",
    "IHAModel",
    "IHAPreTrainedModel",
    "load_strict",
    "lora_config",
    "merge_lora",
    "preset",
]
