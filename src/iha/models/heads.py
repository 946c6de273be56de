"""The heads that every decoder of `transformers` has: classification, token classification, question answering."""

from transformers.modeling_layers import (
    GenericForQuestionAnswering,
    GenericForSequenceClassification,
    GenericForTokenClassification,
)

from iha.models.modeling import IHAPreTrainedModel


class IHAForSequenceClassification(GenericForSequenceClassification, IHAPreTrainedModel):
    """One label for a sequence, read at its last token: classification, reward models."""


class IHAForTokenClassification(GenericForTokenClassification, IHAPreTrainedModel):
    """One label for each token."""


class IHAForQuestionAnswering(GenericForQuestionAnswering, IHAPreTrainedModel):
    """Where an answer starts and ends."""
