"""The decoder-only language model, as a `transformers` model: one backbone, in which only attention differs."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import slice_logits_to_keep
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from iha.layers.base import SelfAttention
from iha.layers.call import Shared
from iha.layers.projection import normalise, project
from iha.models.attention import backend_of, build_layer, shared_by_layers
from iha.models.cache import CacheOfLayer, check_batch
from iha.models.configuration import IHAConfig
from iha.models.generation_mixin import IHAGenerationMixin
from iha.models.inputs import documents_of, documents_of_lengths, padding_of
from iha.models.remote_code import write_stub
from iha.models.rotary import IHARotaryEmbedding


class IHAMLP(nn.Module):
    def __init__(self, config: IHAConfig) -> None:
        super().__init__()
        E, F, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(E, F, bias) if config.gated_mlp else None
        self.up_proj = nn.Linear(E, F, bias)
        self.down_proj = nn.Linear(F, E, bias)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, x: Tensor) -> Tensor:
        if self.gate_proj is None:
            return project(self.down_proj, self.act_fn(project(self.up_proj, x)))
        return project(self.down_proj, self.act_fn(project(self.gate_proj, x)) * project(self.up_proj, x))


class IHADecoderLayer(GradientCheckpointingLayer):
    def __init__(self, config: IHAConfig, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.self_attn = build_layer(config, layer_idx)
        self.mlp = IHAMLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self,
        hidden_states: Tensor,  # (B, N, E)
        shared: Shared,
        padding: Tensor | None = None,  # (B, tokens so far) bool, True = a real token
        document_ids: Tensor | None = None,  # (B, N)
        past_key_values: Cache | None = None,
        use_cache: bool = False,
    ) -> Tensor:
        hidden_states = self.attend_to_itself(hidden_states, shared, padding, document_ids, past_key_values)
        return hidden_states + self.mlp(normalise(self.post_attention_layernorm, hidden_states))

    def attend_to_itself(
        self,
        hidden_states: Tensor,
        shared: Shared,
        padding: Tensor | None,
        document_ids: Tensor | None,
        past_key_values: Cache | None,
    ) -> Tensor:
        """The first half of the layer: self-attention and its residual connection."""
        cache = None if past_key_values is None else CacheOfLayer(past_key_values, self.layer_idx, padding)
        masks = {}
        if cache is None:
            real = None if padding is None else padding[:, : hidden_states.shape[1]]
            masks = {"key_padding_mask": real, "document_ids": document_ids}
        attended, _ = self.self_attn(
            normalise(self.input_layernorm, hidden_states), cache=cache, shared=shared, **masks
        )
        return hidden_states + attended


class IHAPreTrainedModel(PreTrainedModel):
    config: IHAConfig
    config_class = IHAConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["IHADecoderLayer"]  # noqa: RUF012
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = True
    _supports_attention_backend = False  # attention functions registered elsewhere do not mix heads
    _can_compile_fullgraph = True
    _can_record_outputs = {"hidden_states": IHADecoderLayer, "attentions": SelfAttention}  # noqa: RUF012

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        # `transformers.initialization` skips loaded parameters. `reset_mixing` overwrites them, so they are restored.
        super()._init_weights(module)
        if isinstance(module, IHARotaryEmbedding):
            init.copy_(module.inv_freq, module.frequencies()[0])
        elif isinstance(module, SelfAttention) and hasattr(module, "reset_mixing"):
            own = dict(module.named_parameters(recurse=False))  # alpha and R, lambda, ...
            loaded = {name: p.clone() for name, p in own.items() if getattr(p, "_is_hf_initialized", False)}
            module.reset_mixing()  # type: ignore[operator]
            for name, value in loaded.items():
                own[name].copy_(value)

    def _check_and_adjust_attn_implementation(self, attn_implementation: str | None, *args: Any, **kwargs: Any) -> str:
        """Also called by `set_attn_implementation`. No name is replaced by a kernel from the Hub."""
        implementation = "sdpa" if attn_implementation is None else attn_implementation
        backend_of(implementation)
        return self.get_correct_attn_implementation(implementation, kwargs.get("is_init_check", False))

    def _flash_attn_can_dispatch(self, flash_attn_version: int, is_init_check: bool = False) -> bool:
        """Always: the flash attention is torch's own, not the package that `transformers` would ask for.

        What it cannot run is refused when it is called, with the reason.
        """
        return True

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> Any:
        """Also writes a stub next to the weights, so that `trust_remote_code=True` finds `iha`."""
        result = super().save_pretrained(save_directory, *args, **kwargs)
        if kwargs.get("is_main_process", True):
            write_stub(save_directory)
        return result

    def _upload_modified_files(self, working_dir: Any, *args: Any, **kwargs: Any) -> Any:
        """`save_pretrained(..., push_to_hub=True)` uploads before it returns, so the stub must be written first."""
        write_stub(working_dir)
        return super()._upload_modified_files(working_dir, *args, **kwargs)


class IHAModel(IHAPreTrainedModel):
    layer_class = IHADecoderLayer
    layer_inputs: tuple[str, ...] = ()  # further arguments of `forward` that go to every layer

    def __init__(self, config: IHAConfig) -> None:
        super().__init__(config)
        self.padding_idx = config.pad_token_id
        self.vocab_size = config.vocab_size
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.layers = nn.ModuleList(self.layer_class(config, index) for index in range(config.num_hidden_layers))
        self.rotary_strides: frozenset[int] = frozenset(layer.self_attn.rotary_stride for layer in self.layers)  # type: ignore[union-attr, misc]
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = IHARotaryEmbedding(config)
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,  # (B, N)
        attention_mask: Tensor | None = None,  # (B, tokens so far), 0 = padding
        position_ids: Tensor | None = None,  # (1 or B, N)
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,  # (B, N, E)
        use_cache: bool | None = None,
        document_ids: Tensor | None = None,  # (B, N), attention stays inside a document
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        assert inputs_embeds is not None
        check_batch(past_key_values, inputs_embeds.shape[0])
        padding = padding_of(attention_mask, inputs_embeds, past_key_values)
        if document_ids is None:
            document_ids = documents_of_lengths(kwargs.get("cu_seq_lens_q"), inputs_embeds)
        if document_ids is None and padding is None and past_key_values is None:
            document_ids = documents_of(position_ids)
        if document_ids is not None:
            if past_key_values is not None:
                raise ValueError("document_ids are for whole sequences: a cache cannot continue packed documents")
            if document_ids.shape != inputs_embeds.shape[:2]:
                raise ValueError(
                    f"document_ids must be (B, N) = {tuple(inputs_embeds.shape[:2])}, got {tuple(document_ids.shape)}"
                )
        elif use_cache and past_key_values is None:
            past_key_values = self.new_cache()
        if position_ids is None:
            seen = 0 if past_key_values is None else past_key_values.get_seq_length()
            position_ids = (torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + seen).unsqueeze(0)

        shared = shared_by_layers(self.config, self.rotary_emb, self.rotary_strides, position_ids)
        hidden_states = inputs_embeds
        own = {name: kwargs.get(name) for name in self.layer_inputs}
        for layer in self.layers[: self.config.num_hidden_layers]:  # fewer when drafting (assistant_early_exit)
            hidden_states = layer(
                hidden_states,
                shared,
                padding,
                document_ids,
                past_key_values=past_key_values,
                use_cache=use_cache,
                **own,
            )
        return BaseModelOutputWithPast(
            last_hidden_state=normalise(self.norm, hidden_states),  # type: ignore[arg-type]
            past_key_values=past_key_values,
        )

    def new_cache(self) -> Cache:
        return DynamicCache(config=self.config)


class IHAForCausalLM(IHAPreTrainedModel, IHAGenerationMixin):
    """The language model. `IHAForCausalLM(IHAConfig(...))`, or `IHAForCausalLM(iha.models.preset("10m"))`."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012
    _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012
    _pp_plan = {"lm_head": (["hidden_states"], ["logits"])}  # type: ignore[dict-item]  # noqa: RUF012

    def __init__(self, config: IHAConfig) -> None:
        super().__init__(config)
        self.model = IHAModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,  # (B, N), -100 = ignored by the loss
        use_cache: bool | None = None,
        document_ids: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            document_ids=document_ids,
            **kwargs,
        )
        logits = project(self.lm_head, slice_logits_to_keep(outputs.last_hidden_state, logits_to_keep))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,  # type: ignore[arg-type]
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    @staticmethod
    def create_masks_for_generate(
        attention_mask: Tensor | None = None, past_key_values: Cache | None = None, **_: Any
    ) -> Tensor | None:
        """For a static cache: the padding mask at the cache's fixed length, so that compiled code sees one shape."""
        if attention_mask is None or bool(attention_mask.all()):
            return None
        assert past_key_values is not None
        room = past_key_values.get_max_length() - attention_mask.shape[1]
        return torch.nn.functional.pad(attention_mask, (0, max(0, room)), value=1).bool()
