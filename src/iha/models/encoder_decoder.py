"""The encoder–decoder: the encoder, the decoder that attends to it, and the head under which `generate` works."""

from typing import Any

from torch import Tensor, nn
from transformers import EncoderDecoderCache
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils import can_return_tuple

from iha.models.cross_decoder import IHACrossDecoder, IHAEncoderDecoderConfig
from iha.models.encoder import IHAEncoderModel
from iha.models.generation_mixin import IHAGenerationMixin
from iha.models.modeling import IHAPreTrainedModel


class IHAEncoderDecoderPreTrainedModel(IHAPreTrainedModel):
    config: IHAEncoderDecoderConfig
    config_class = IHAEncoderDecoderConfig  # type: ignore[assignment]
    _no_split_modules = ["IHADecoderLayer", "IHACrossDecoderLayer"]  # noqa: RUF012


class IHAEncoderDecoderModel(IHAEncoderDecoderPreTrainedModel):
    """Encoder and decoder without the output head."""

    _tied_weights_keys = {"encoder.embed_tokens.weight": "decoder.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: IHAEncoderDecoderConfig) -> None:
        super().__init__(config)
        of_encoder = config.encoder_config()
        of_encoder._attn_implementation = config._attn_implementation
        self.encoder = IHAEncoderModel(of_encoder)
        self.decoder = IHACrossDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        if not self.config.tie_word_embeddings:
            raise ValueError("tie_word_embeddings=False: encoder and decoder have embeddings of their own; set each")
        self.encoder.embed_tokens = self.decoder.embed_tokens = value  # type: ignore[assignment]

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,  # (B, T)
        attention_mask: Tensor | None = None,  # (B, T), 0 = padding
        decoder_input_ids: Tensor | None = None,  # (B, N)
        decoder_attention_mask: Tensor | None = None,  # (B, tokens so far)
        encoder_outputs: Any = None,  # of an earlier call; the input is not encoded again
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,  # (B, T, E)
        decoder_inputs_embeds: Tensor | None = None,  # (B, N, E)
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqModelOutput:
        kept = {name: kwargs[name] for name in ("output_attentions", "output_hidden_states") if name in kwargs}
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kept
            )
        decoded = self.decoder(
            decoder_input_ids, attention_mask=decoder_attention_mask, inputs_embeds=decoder_inputs_embeds,
            encoder_hidden_states=encoder_outputs[0], encoder_attention_mask=attention_mask,
            past_key_values=past_key_values, use_cache=use_cache, **kept,
        )  # fmt: skip
        of_encoder = encoder_outputs if isinstance(encoder_outputs, dict) else {}
        return Seq2SeqModelOutput(
            last_hidden_state=decoded.last_hidden_state,
            past_key_values=decoded.past_key_values,
            decoder_hidden_states=decoded.hidden_states,
            decoder_attentions=decoded.attentions,
            cross_attentions=decoded.get("cross_attentions"),
            encoder_last_hidden_state=encoder_outputs[0],
            encoder_hidden_states=of_encoder.get("hidden_states"),
            encoder_attentions=of_encoder.get("attentions"),
        )


class IHAForConditionalGeneration(IHAEncoderDecoderPreTrainedModel, IHAGenerationMixin):
    """The encoder–decoder with its output head. `generate` reads the input once and decodes with a cache."""

    _tied_weights_keys = {  # noqa: RUF012
        "model.encoder.embed_tokens.weight": "model.decoder.embed_tokens.weight",
        "lm_head.weight": "model.decoder.embed_tokens.weight",
    }

    def __init__(self, config: IHAEncoderDecoderConfig) -> None:
        super().__init__(config)
        self.loss_type = "ForMaskedLM"  # labels stand where they are predicted: the decoder's input is shifted instead
        self.model = IHAEncoderDecoderModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_encoder(self, *_: Any, **__: Any) -> IHAEncoderModel:
        return self.model.encoder

    def get_decoder(self) -> IHACrossDecoder:
        return self.model.decoder

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: Tensor | None = None,  # (B, N), -100 = ignored by the loss
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Without decoder inputs, they are the labels shifted by one (`prepare_decoder_input_ids_from_labels`)."""
        if decoder_input_ids is None and kwargs.get("decoder_inputs_embeds") is None and labels is not None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        rest = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        return Seq2SeqLMOutput(loss=loss, logits=logits, **rest)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """The labels after `decoder_start_token_id`, one step later; padding where the loss ignores them."""
        start, pad = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None:
            raise ValueError("labels need decoder_start_token_id in the configuration: what the decoder starts with")
        shifted = labels.new_full(labels.shape, start)
        shifted[:, 1:] = labels[:, :-1]
        return shifted.masked_fill(shifted == -100, start if pad is None else pad)

    def _prepare_cache_for_generation(self, generation_config: Any, model_kwargs: dict, *args: Any) -> None:  # type: ignore[override]
        """As in `transformers`, but dynamic caches only, and cross-attention is never cut to the decoder's window."""
        if generation_config.cache_implementation not in (None, "dynamic"):
            raise ValueError(
                f"cache_implementation={generation_config.cache_implementation!r}: encoder–decoders have dynamic caches"
            )
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args)  # type: ignore[misc]
        cache = model_kwargs.get("past_key_values")
        if isinstance(cache, EncoderDecoderCache) and not getattr(cache, "_is_user_defined", False):
            model_kwargs["past_key_values"] = self.model.decoder.new_cache()
