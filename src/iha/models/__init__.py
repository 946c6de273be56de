"""The language model and its kin, as `transformers` models. Importing the package registers them with Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from iha.models.configuration import IHAConfig
from iha.models.cross_decoder import IHAEncoderDecoderConfig
from iha.models.encoder import (
    IHAEncoderConfig,
    IHAEncoderForSequenceClassification,
    IHAEncoderModel,
    IHAForMaskedLM,
)
from iha.models.encoder_decoder import IHAEncoderDecoderModel, IHAForConditionalGeneration
from iha.models.fine_tuning import lora_config, merge_lora
from iha.models.heads import IHAForQuestionAnswering, IHAForSequenceClassification, IHAForTokenClassification
from iha.models.loading import load_strict
from iha.models.modeling import IHAForCausalLM, IHAModel, IHAPreTrainedModel
from iha.models.presets import PRESETS, preset
from iha.models.vision import IHAForImageClassification, IHAVisionConfig, IHAVisionModel

AutoConfig.register(IHAConfig.model_type, IHAConfig, exist_ok=True)
AutoModel.register(IHAConfig, IHAModel, exist_ok=True)
AutoModelForCausalLM.register(IHAConfig, IHAForCausalLM, exist_ok=True)
AutoModelForSequenceClassification.register(IHAConfig, IHAForSequenceClassification, exist_ok=True)
AutoModelForTokenClassification.register(IHAConfig, IHAForTokenClassification, exist_ok=True)
AutoModelForQuestionAnswering.register(IHAConfig, IHAForQuestionAnswering, exist_ok=True)

AutoConfig.register(IHAEncoderConfig.model_type, IHAEncoderConfig, exist_ok=True)
AutoModel.register(IHAEncoderConfig, IHAEncoderModel, exist_ok=True)
AutoModelForMaskedLM.register(IHAEncoderConfig, IHAForMaskedLM, exist_ok=True)
AutoModelForSequenceClassification.register(IHAEncoderConfig, IHAEncoderForSequenceClassification, exist_ok=True)
AutoConfig.register(IHAEncoderDecoderConfig.model_type, IHAEncoderDecoderConfig, exist_ok=True)
AutoModel.register(IHAEncoderDecoderConfig, IHAEncoderDecoderModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(IHAEncoderDecoderConfig, IHAForConditionalGeneration, exist_ok=True)
AutoConfig.register(IHAVisionConfig.model_type, IHAVisionConfig, exist_ok=True)
AutoModel.register(IHAVisionConfig, IHAVisionModel, exist_ok=True)
AutoModelForImageClassification.register(IHAVisionConfig, IHAForImageClassification, exist_ok=True)

__all__ = [
    "PRESETS",
    "IHAConfig",
    "IHAEncoderConfig",
    "IHAEncoderDecoderConfig",
    "IHAEncoderDecoderModel",
    "IHAEncoderForSequenceClassification",
    "IHAEncoderModel",
    "IHAForCausalLM",
    "IHAForConditionalGeneration",
    "IHAForImageClassification",
    "IHAForMaskedLM",
    "IHAForQuestionAnswering",
    "IHAForSequenceClassification",
    "IHAForTokenClassification",
    "IHAModel",
    "IHAPreTrainedModel",
    "IHAVisionConfig",
    "IHAVisionModel",
    "load_strict",
    "lora_config",
    "merge_lora",
    "preset",
]
