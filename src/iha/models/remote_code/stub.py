"""Interleaved Head Attention. The model itself is in the package `iha`; this file only finds it."""

try:
    from iha.models import (
        IHAConfig,
        IHAEncoderConfig,
        IHAEncoderDecoderConfig,
        IHAEncoderDecoderModel,
        IHAEncoderForSequenceClassification,
        IHAEncoderModel,
        IHAForCausalLM,
        IHAForConditionalGeneration,
        IHAForImageClassification,
        IHAForMaskedLM,
        IHAForQuestionAnswering,
        IHAForSequenceClassification,
        IHAForTokenClassification,
        IHAModel,
        IHAVisionConfig,
        IHAVisionModel,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "This checkpoint is an Interleaved Head Attention model (model_type 'iha…'). Its code is in the package `iha`: "
        f"pip install 'iha[models]'. (Not found: {error.name})"
    ) from error

__all__ = [
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
    "IHAVisionConfig",
    "IHAVisionModel",
]
