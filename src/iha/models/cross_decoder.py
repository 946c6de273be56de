"""The decoder of an encoder–decoder: the language model's, with cross-attention to the encoder in every layer."""

from copy import deepcopy
from dataclasses import fields
from typing import Any

from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.utils.output_capturing import OutputRecorder

from iha.layers.base import SelfAttention
from iha.layers.call import Shared
from iha.layers.cross import CROSS_MECHANISMS, CrossAttention, Memory
from iha.models.configuration import IHAConfig, with_value_errors
from iha.models.encoder import IHAEncoderConfig
from iha.models.inputs import padding_of
from iha.models.modeling import IHADecoderLayer, IHAModel


@with_value_errors
@strict
class IHAEncoderDecoderConfig(IHAConfig):
    """Configuration of the encoder–decoder. The fields of `IHAConfig` are the decoder's; the encoder shares
    them, but is not causal.

    Args:
        num_encoder_layers: as many as the decoder has when None.
        encoder_schedule: the layers of the encoder, as in `layer_schedule`. Filled in from the same fields if None.
        cross_attention: "iha" or "multihead": how the decoder attends to the encoder's output.
        cross_pseudo_heads: P of that attention, if it is "iha".
        tie_word_embeddings: whether encoder, decoder and output head share one matrix; none of them do when False.
        decoder_start_token_id: the first token of the decoder's input.
    """

    model_type = "iha_encoder_decoder"

    is_encoder_decoder: bool = True
    num_encoder_layers: int | None = None
    encoder_schedule: list[dict[str, Any]] | None = None
    cross_attention: str = "iha"
    cross_pseudo_heads: int = 2
    bos_token_id: int | None = None
    decoder_start_token_id: int | None = 0

    def __post_init__(self, **kwargs: Any) -> None:
        if self.cross_attention not in CROSS_MECHANISMS:
            raise ValueError(f"cross_attention must be one of {tuple(CROSS_MECHANISMS)}, got {self.cross_attention!r}")
        if not 1 <= self.cross_pseudo_heads <= 1 << 10:
            raise ValueError(f"cross_pseudo_heads must be at least 1 and at most 1024, got {self.cross_pseudo_heads}")
        if self.attention_dropout:
            raise ValueError(f"attention_dropout is {self.attention_dropout}, but cross-attention has no dropout")
        if not self.is_encoder_decoder:
            raise ValueError("is_encoder_decoder=False: this is the configuration of an encoder–decoder")
        super().__post_init__(**kwargs)
        if self.num_encoder_layers is None:
            self.num_encoder_layers = self.num_hidden_layers
        self.encoder_schedule = self.encoder_config().layer_schedule

    def encoder_config(self) -> IHAEncoderConfig:
        """The configuration of the encoder alone."""
        own = {"causal", "use_cache", "is_encoder_decoder", "layer_types", "sliding_window", "architectures"}
        common = {field.name for field in fields(IHAConfig)} - own
        values = {name: deepcopy(getattr(self, name)) for name in common}
        changes = {"num_hidden_layers": self.num_encoder_layers, "layer_schedule": self.encoder_schedule}
        return IHAEncoderConfig(**{**values, **changes})


class IHACrossDecoderLayer(IHADecoderLayer):
    """A decoder layer that attends to itself, then to the encoder's output."""

    def __init__(self, config: IHAEncoderDecoderConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        own: dict[str, Any] = {}
        if config.cross_attention == "iha":
            own = {
                "num_pseudo_heads": config.cross_pseudo_heads,
                "collapse": config.collapse,
                "init": config.mixing_init,
            }
        self.cross_attn = CROSS_MECHANISMS[config.cross_attention](
            config.hidden_size,
            config.num_attention_heads,
            num_kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            bias=config.attention_bias,
            out_bias=config.attention_out_bias,
            qk_norm_eps=config.rms_norm_eps if config.qk_norm else None,
            gate=config.attention_gate,  # type: ignore[arg-type]
            **own,
        )
        self.cross_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self,
        hidden_states: Tensor,  # (B, N, E)
        shared: Shared,
        padding: Tensor | None = None,
        document_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool = False,
        encoder_hidden_states: Tensor | None = None,  # (B, T, E)
        encoder_padding: Tensor | None = None,  # (B, T) bool, True = a real token
    ) -> Tensor:
        assert past_key_values is None or isinstance(past_key_values, EncoderDecoderCache)
        own = None if past_key_values is None else past_key_values.self_attention_cache
        hidden_states = self.attend_to_itself(hidden_states, shared, padding, document_ids, own)
        memory = self._memory(past_key_values, encoder_hidden_states, encoder_padding)
        attended, _ = self.cross_attn(self.cross_attention_layernorm(hidden_states), memory, shared=shared)
        hidden_states = hidden_states + attended
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))

    def _memory(self, cache: EncoderDecoderCache | None, states: Tensor | None, padding: Tensor | None) -> Memory:
        """Keys and values of the encoder's output: computed once, then read from the cache."""
        if cache is not None and cache.is_updated.get(self.layer_idx):
            layer = cache.cross_attention_cache.layers[self.layer_idx]
            return Memory(layer.keys, layer.values, padding)  # type: ignore[union-attr, arg-type]
        assert states is not None
        memory = self.cross_attn.remember(states, padding)
        if cache is not None:
            cache.cross_attention_cache.update(memory.k, memory.v, self.layer_idx)
            cache.is_updated[self.layer_idx] = True
        return memory


class IHACrossDecoder(IHAModel):
    """The decoder of an encoder–decoder."""

    config: IHAEncoderDecoderConfig
    config_class = IHAEncoderDecoderConfig  # type: ignore[assignment]
    layer_class = IHACrossDecoderLayer  # type: ignore[assignment]
    layer_inputs = ("encoder_hidden_states", "encoder_padding")
    _no_split_modules = ["IHACrossDecoderLayer"]  # noqa: RUF012
    _can_record_outputs = {  # noqa: RUF012
        "hidden_states": OutputRecorder(IHACrossDecoderLayer),
        "attentions": OutputRecorder(SelfAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(CrossAttention, index=1, layer_name="cross_attn"),
    }

    def forward(
        self,
        input_ids: Tensor | None = None,  # (B, N)
        *,
        encoder_hidden_states: Tensor,  # (B, T, E)
        encoder_attention_mask: Tensor | None = None,  # (B, T), 0 = padding
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        if past_key_values is not None:
            _check_cache(past_key_values)
        return super().forward(
            input_ids=input_ids, past_key_values=past_key_values, encoder_hidden_states=encoder_hidden_states,
            encoder_padding=padding_of(encoder_attention_mask, encoder_hidden_states, None), **kwargs,
        )  # fmt: skip

    def new_cache(self) -> EncoderDecoderCache:
        """Self-attention grows, in windows where the decoder has them. Cross-attention holds the whole input."""
        return EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache())


def _check_cache(cache: Any) -> None:
    if not isinstance(cache, EncoderDecoderCache):
        raise ValueError(f"past_key_values must be an EncoderDecoderCache, got {type(cache).__name__}")
    if any(cache.cross_attention_cache.is_sliding):
        raise ValueError("the cross-attention cache has sliding layers, which drop tokens of the input: DynamicCache()")
