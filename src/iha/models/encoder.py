"""The bidirectional encoder: the backbone of the language model without causality, and its two usual heads."""

from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPast, MaskedLMOutput, SequenceClassifierOutput
from transformers.utils import can_return_tuple

from iha.models.configuration import IHAConfig, with_value_errors
from iha.models.modeling import IHAModel, IHAPreTrainedModel

POOLINGS = ("mean", "first")


@with_value_errors
@strict
class IHAEncoderConfig(IHAConfig):
    """Configuration of the encoder: the fields of `IHAConfig`, where `causal` is None. A window sees both sides:
    |token(i) - token(j)| < window. There is no cache.

    Args:
        classifier_pooling: which hidden state a sequence is classified by: the "mean" of its real tokens, or the
            "first", for inputs that begin with a [CLS] token.
    """

    model_type = "iha_encoder"
    causalities = (None,)  # type: ignore[assignment]

    causal: str | None = None
    use_cache: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    classifier_pooling: str = "mean"

    def __post_init__(self, **kwargs: Any) -> None:
        if self.classifier_pooling not in POOLINGS:
            raise ValueError(f"classifier_pooling must be one of {POOLINGS}, got {self.classifier_pooling!r}")
        if self.use_cache:
            raise ValueError("use_cache=True: an encoder has no cache, for later tokens change earlier outputs")
        super().__post_init__(**kwargs)


class IHAEncoderPreTrainedModel(IHAPreTrainedModel):
    config: IHAEncoderConfig
    config_class = IHAEncoderConfig


class IHAEncoderModel(IHAModel):
    """The encoder without a head: hidden states of all tokens, each of which may see all others."""

    config: IHAEncoderConfig
    config_class = IHAEncoderConfig

    def forward(
        self,
        input_ids: Tensor | None = None,  # (B, N)
        attention_mask: Tensor | None = None,  # (B, N), 0 = padding, on either side
        position_ids: Tensor | None = None,  # (1 or B, N)
        inputs_embeds: Tensor | None = None,  # (B, N, E)
        document_ids: Tensor | None = None,  # (B, N), attention stays inside a document
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        if kwargs.pop("past_key_values", None) is not None or kwargs.pop("use_cache", None):
            raise ValueError("an encoder has no cache: give the whole sequence, without past_key_values and use_cache")
        return super().forward(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, inputs_embeds=inputs_embeds,
            document_ids=document_ids, use_cache=False, **kwargs,
        )  # fmt: skip


class IHAForMaskedLM(IHAEncoderPreTrainedModel):
    """The encoder with a prediction of every token: the loss is that of the tokens whose label is not -100."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: IHAEncoderConfig) -> None:
        super().__init__(config)
        self.model = IHAEncoderModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self, input_ids: Tensor | None = None, *, labels: Tensor | None = None, **kwargs: Any
    ) -> MaskedLMOutput:
        """labels (B, N), -100 = ignored. The other arguments are those of `IHAEncoderModel`."""
        outputs = self.model(input_ids=input_ids, **kwargs)
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class IHAEncoderForSequenceClassification(IHAEncoderPreTrainedModel):
    """The encoder with one prediction per sequence, from the pooled hidden states (`classifier_pooling`)."""

    def __init__(self, config: IHAEncoderConfig) -> None:
        super().__init__(config)
        self.num_labels: int = config.num_labels  # type: ignore[assignment]
        self.model = IHAEncoderModel(config)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        labels: Tensor | None = None,  # (B,)
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        pooled = pool(outputs.last_hidden_state, attention_mask, self.config.classifier_pooling)
        logits = self.classifier(pooled)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


def pool(
    hidden_states: Tensor,  # (B, N, E)
    attention_mask: Tensor | None,  # (B, N), 0 = padding
    pooling: str,
) -> Tensor:  # (B, E)
    """The mean over real tokens, or the first real token."""
    if attention_mask is None:
        return hidden_states.mean(dim=1) if pooling == "mean" else hidden_states[:, 0]
    real = attention_mask.to(hidden_states.dtype)
    if pooling == "mean":
        return torch.einsum("bn,bne->be", real, hidden_states) / real.sum(dim=1, keepdim=True).clamp(min=1)
    return hidden_states[torch.arange(len(real), device=real.device), real.argmax(dim=1)]
