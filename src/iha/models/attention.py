"""The layers of `iha.layers` under the calling convention of `transformers`: shared RoPE tables, Cache, left padding.

A cache holds each layer's heads before mixing, keys already turned to their token's position, as (B, 1, N, G*D): one
"head" as wide as all. Its length is N tokens, any Cache of `transformers` holds it, and it is (B, N, G, D) by a view.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from iha.layers.base import SelfAttention
from iha.layers.differential import DifferentialAttention
from iha.layers.interleaved import InterleavedHeadAttention
from iha.layers.multihead import MultiHeadAttention
from iha.layers.talking_heads import TalkingHeadsAttention
from iha.models.configuration import IHAConfig
from iha.models.context import Context
from iha.ops.backends.formula import attend_with_weights
from iha.ops.decoding import (
    FoldedMixing,
    decode_interleaved,
    decode_multihead,
    decoding_bias,
    fold_mixing,
    visible_to_newest,
)
from iha.ops.inputs import zero_padding
from iha.ops.interleaved import interleaved_head_attention
from iha.ops.masking import Masking
from iha.ops.mixing import collapse_pseudo_heads, mix
from iha.ops.rotary import rotate_by_full
from iha.ops.visibility import Visibility


class CachedAttention(SelfAttention):
    """A layer's attention inside the model; the mechanism is the next base class."""

    layer_idx: int
    stride: int  # see IHAConfig.rotary_stride

    def forward(  # type: ignore[override]
        self, x: Tensor, context: Context, cache: Cache | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """x (B, Nq, E) to (B, Nq, E) and, with attn_implementation="eager", the attention weights."""
        B, Nq, _ = x.shape
        q, k, v = self.project(x)
        # One new token with pseudo-heads at positions of their own: its query is turned for each, when it has them.
        late = (
            cache is not None
            and Nq == 1
            and self.stride in context.decoding_rotary
            and context.implementation != "eager"
        )
        q, k = q if late else self.turned(q, context), self.turned(k, context)
        if cache is None:
            out, weights = self.attend_turned(q, k, v, context.padding_at(0, Nq), context)
            return self.o_proj(out.flatten(2)), weights
        first = cache.get_mask_sizes(Nq, self.layer_idx)[1]  # token index of what `update` returns first
        newest = cache.get_seq_length(self.layer_idx) + (Nq - 1)
        k, v = cache.update(k.reshape(B, 1, Nq, -1), v.reshape(B, 1, Nq, -1), self.layer_idx)
        k, v = (t.view(B, -1, self.num_kv_heads, self.head_dim) for t in (k, v))
        if Nq == 1:
            out, weights = self.decode(q, k, v, context, cache, newest, first)
        else:
            length = int(newest) + 1 - first  # a static cache has room for more
            out, weights = self.attend_turned(
                q, k[:, :length], v[:, :length], context.padding_at(first, length), context
            )
        return self.o_proj(out.flatten(2)), weights

    def turned(self, x: Tensor, context: Context) -> Tensor:
        return rotate_by_full(x, *context.tables[self.stride])

    def attend_turned(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, context: Context
    ) -> tuple[Tensor, Tensor | None]:
        """The mechanism on q (B, Nq, H, D) and k, v (B, N, G, D) that RoPE has turned, and weights if it has any."""
        self.backend = context.backend
        return self.attend(q, k, v, padding, context.document_ids), None

    def decode(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, cache: Cache, newest: int | Tensor, first: int
    ) -> tuple[Tensor, Tensor | None]:
        """One new token. A static cache goes on beyond it: that room is moved to the front, where it is padding."""
        T = k.shape[1]
        filled = newest + 1 - first
        if isinstance(filled, int) and filled == T:
            return self.attend_turned(q, k, v, context.padding_at(first, T), context)
        order = (torch.arange(T, device=k.device) + filled) % T  # the newest token last
        real = (order < filled).expand(k.shape[0], T)
        if context.padding is not None:
            real = real & context.padding[:, first + order]
        return self.attend_turned(q, k[:, order], v[:, order], real, context)

    def bias(self, context: Context, newest: int | Tensor, first: int, T: int) -> Tensor | None:
        """What the newest token sees of T in the buffer, (1 or B, H*P*P, T); None for everything. Layers share it."""
        rule: Visibility = self.visibility
        room = not isinstance(newest, int) or newest + 1 - first != T
        own_token_whole = rule.causal == "token" or rule.num_pseudo_heads == 1
        if not room and context.padding is None and own_token_whole and (rule.window is None or rule.window >= T):
            return None
        # A number in a dictionary's key is a constant to the compiler: it would compile every token anew.
        key = None if torch.compiler.is_compiling() else (rule, first, T)
        if key is None or key not in context.masks:
            visible = visible_to_newest(
                Masking(rule, context.padding_at(first, T)), newest, first, T, self.o_proj.weight.device
            )
            bias = decoding_bias(visible, self.num_heads, self.o_proj.weight.dtype)
            if key is None:
                return bias
            context.masks[key] = bias
        return context.masks[key]


class CachedInterleaved(CachedAttention, InterleavedHeadAttention):
    @property
    def _mixing(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.alpha_q, self.alpha_k, self.alpha_v, self.collapse

    def attend_turned(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, context: Context
    ) -> tuple[Tensor, Tensor | None]:
        rotary, documents = context.pseudo_rotary.get(self.stride), context.document_ids
        if context.implementation == "eager":
            q, k, v = zero_padding(padding, q, k, v)
            q, k, v = mix(q, self.alpha_q, rotary), mix(k, self.alpha_k, rotary), mix(v, self.alpha_v)
            out, weights = attend_with_weights(q, k, v, Masking(self.visibility, padding, documents))
            return collapse_pseudo_heads(out, self.collapse, self.num_pseudo_heads), weights
        out = interleaved_head_attention(
            q, k, v, *self._mixing, causal=self.causal, window=self.window, pseudo_rotary=rotary,
            key_padding_mask=padding, document_ids=documents, backend=context.backend,
        )  # fmt: skip
        return out, None

    def decode(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, cache: Cache, newest: int | Tensor, first: int
    ) -> tuple[Tensor, Tensor | None]:
        if context.implementation == "eager":
            return super().decode(q, k, v, context, cache, newest, first)
        bias = self.bias(context, newest, first, k.shape[1])
        rotary = context.decoding_rotary.get(self.stride)
        return decode_interleaved(q, k, v, self.folded_mixing(cache, newest), bias=bias, rotary=rotary), None

    def folded_mixing(self, cache: Cache, newest: int | Tensor) -> FoldedMixing:
        """For decoding. Kept with the cache, which is as good as the weights it was filled by."""
        if torch.is_grad_enabled() or not isinstance(newest, int) or torch.compiler.is_compiling():
            return fold_mixing(*self._mixing, scale=self.head_dim**-0.5)
        layer: Any = cache.layers[self.layer_idx]
        kept, tokens = getattr(layer, "folded_mixing", (None, -1))
        if kept is None or tokens != newest:  # something other than this token came after the last
            kept = fold_mixing(*self._mixing, scale=self.head_dim**-0.5)
        layer.folded_mixing = kept, newest + 1
        return kept


class CachedMultiHead(CachedAttention, MultiHeadAttention):
    def attend_turned(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, context: Context
    ) -> tuple[Tensor, Tensor | None]:
        if context.implementation != "eager":
            return super().attend_turned(q, k, v, padding, context)
        q, k, v = zero_padding(padding, q, k, v)
        return attend_with_weights(q, k, v, Masking(self.visibility, padding, context.document_ids))

    def decode(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, cache: Cache, newest: int | Tensor, first: int
    ) -> tuple[Tensor, Tensor | None]:
        if context.implementation == "eager":
            return super().decode(q, k, v, context, cache, newest, first)
        return decode_multihead(q, k, v, self.bias(context, newest, first, k.shape[1])), None


class CachedTalkingHeads(CachedAttention, TalkingHeadsAttention):
    pass


class CachedDifferential(CachedAttention, DifferentialAttention):
    pass


MECHANISMS: dict[str, type[CachedAttention]] = {
    "iha": CachedInterleaved,
    "multihead": CachedMultiHead,
    "talking_heads": CachedTalkingHeads,
    "differential": CachedDifferential,
}


def build_attention(config: IHAConfig, layer_idx: int) -> CachedAttention:
    """The attention of one layer, as the schedule says."""
    spec = config.layers[layer_idx]
    options: dict[str, Any] = {
        "num_kv_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "bias": config.attention_bias,
        "out_bias": config.attention_out_bias,
        "qk_norm_eps": config.rms_norm_eps if config.qk_norm else None,
        "window": spec.window,
    }
    if spec.is_interleaved:
        options |= {
            "num_pseudo_heads": spec.num_pseudo_heads,
            "causal": config.causal,
            "rope_positions": config.rope_positions,
            "collapse": config.collapse,
            "init": config.mixing_init,
        }
    if spec.mechanism == "differential":
        options["depth"] = layer_idx
    attention = MECHANISMS[spec.mechanism](config.hidden_size, config.num_attention_heads, **options)
    attention.layer_idx, attention.stride = layer_idx, config.rotary_stride(spec)
    return attention
