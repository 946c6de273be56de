"""Task heads as for other `transformers` decoders: sequence and token classification, question answering."""

from transformers.modeling_layers import (
    GenericForQuestionAnswering,
    GenericForSequenceClassification,
    GenericForTokenClassification,
)

from iha.models.modeling import IHAPreTrainedModel


class IHAForSequenceClassification(GenericForSequenceClassification, IHAPreTrainedModel):
    """One label per sequence, predicted at its last token: classification, reward models."""


class IHAForTokenClassification(GenericForTokenClassification, IHAPreTrainedModel):
    """One label per token."""


class IHAForQuestionAnswering(GenericForQuestionAnswering, IHAPreTrainedModel):
    """Start and end of the answer span."""
