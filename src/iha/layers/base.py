"""What every self-attention layer here shares: four projections, RoPE, padding, and decoding with a cache.

A mechanism subclasses `SelfAttention`, adds its own parameters and defines how heads attend. A forward runs
project → rotate → (cache) → attend → (exclude the own value) → (gate) → output projection. For a single new token,
decode takes the place of attend.
"""

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from iha.layers.cache import Cached, KVCache, LayerCache
from iha.layers.call import Call, Shared
from iha.layers.costs import StatesItsCosts
from iha.layers.projection import project
from iha.ops.checks import CAUSALITIES, check_masking
from iha.ops.decoding import additive_mask, visible_to_newest
from iha.ops.inputs import zero_padding
from iha.ops.masking import Masking
from iha.ops.output import GATES, Gate, exclude_own_value, gate_heads
from iha.ops.precision import wide
from iha.ops.rotary import Rotation, rotation_by_theta
from iha.ops.visibility import Causality, Visibility


class SelfAttention(StatesItsCosts, nn.Module):
    """Drop-in self-attention: (B, N, embed_dim) to (B, N, embed_dim)."""

    num_pseudo_heads: int = 1  # P; only IHA has more
    num_pseudo_keys: int | None = None  # P_k of IHA, where a token has another number of keys than of queries
    rotary_stride: int = 1  # RoPE positions per token
    backend: str = "auto"
    takes_dropout: bool = False
    dropout: float = 0.0  # of attention weights in training, for layers that take it
    has_pseudo_heads: bool = False  # whether the layer takes num_pseudo_heads
    knows_depth: bool = False  # whether the layer takes `depth`, its index in the model

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = False,
        out_bias: bool | None = None,
        qk_norm_eps: float | None = None,
        causal: Causality = "virtual",
        window: int | None = None,
        rope_theta: float | None = None,
        gate: Gate | None = None,
        exclusive: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        _check(embed_dim, num_heads, num_kv_heads, head_dim, causal, window, rope_theta)
        if gate is not None and gate not in GATES:
            raise ValueError(f"gate must be one of {GATES} or None, got {gate!r}")
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, num_kv_heads  # E, H, G
        self.num_mixed_heads, self.num_mixed_kv_heads = num_heads, num_kv_heads  # H', G': those that attend
        self.head_dim = embed_dim // num_heads if head_dim is None else head_dim  # D
        if rope_theta is not None and self.head_dim % 2:
            raise ValueError(f"RoPE rotates pairs of features: head_dim must be even, got {self.head_dim}")
        self.causal, self.window, self.rope_theta = causal, window, rope_theta
        self.gate, self.exclusive = gate, exclusive
        out_bias = bias if out_bias is None else out_bias
        self.has_bias, self.has_out_bias, self.has_qk_norm = bias, out_bias, qk_norm_eps is not None
        options: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.q_proj = nn.Linear(embed_dim, num_heads * self.head_dim, **options)
        self.k_proj = nn.Linear(embed_dim, num_kv_heads * self.head_dim, **options)
        self.v_proj = nn.Linear(embed_dim, num_kv_heads * self.head_dim, **options)
        self.o_proj = nn.Linear(num_heads * self.head_dim, embed_dim, out_bias, device=device, dtype=dtype)
        # Absent without a gate, so that checkpoints are those of the plain layer.
        self.g_proj = None if gate is None else nn.Linear(embed_dim, self.gate_features, **options)
        # QK-norm (Qwen3 and others): queries and keys are normalised per head, over D features, before RoPE.
        self.q_norm, self.k_norm = (
            None if qk_norm_eps is None else nn.RMSNorm(self.head_dim, qk_norm_eps, device=device, dtype=dtype)
            for _ in range(2)
        )

    @property
    def dropout_p(self) -> float:
        """The probability that an attention weight is dropped now."""
        return self.dropout if self.training else 0.0

    @property
    def visibility(self) -> Visibility:
        return Visibility(self.causal, self.window, self.num_pseudo_heads, self.num_pseudo_keys)

    def forward(
        self,
        x: Tensor,  # (B, Nq, E)
        *,
        key_padding_mask: Tensor | None = None,  # (B, Nq) bool, True = a real token
        document_ids: Tensor | None = None,  # (B, Nq) int, attention stays inside a document
        cache: LayerCache | None = None,
        shared: Shared | None = None,
    ) -> Any:  # (B, Nq, E); with `shared`, a pair of it and the attention weights (or None)
        """With a cache, x holds the tokens that follow those the cache has seen, in chunks of any size.

        `shared` is passed by models: what all their layers share in this forward.
        """
        self._check_inputs(x, key_padding_mask, document_ids, cache)
        if key_padding_mask is not None:
            # Zeroing the heads alone is not enough: NaN or inf in padding would reach the projections' gradients.
            x = x.masked_fill(~key_padding_mask[:, :, None], 0)
        q, k, v = self.project(x)
        own = self.own_value(v) if self.exclusive else None
        rotation = self._rotation(q, cache) if shared is None else shared.rotations[self.rotary_stride]
        if rotation is not None:
            q, k = rotation(q), self.rotate_keys(k, rotation)
        call = Call(rotation, self.backend if shared is None else shared.backend, shared)
        weights = None
        if cache is None:
            masking = Masking(self.visibility, key_padding_mask, document_ids)
            out, weights = self._attend(q, k, v, masking, call)
        else:
            k, v = (t.transpose(1, 2) for t in zero_padding(key_padding_mask, k, v))  # (B, G, Nq, D)
            cached = cache.extended(k, v, key_padding_mask, document_ids)
            if q.shape[1] == 1 and not call.with_weights and not self.dropout_p:
                out = self.decode(q, cached, call)
            else:
                k, v, masking = self._last_is_newest(cached)
                out, weights = self._attend(q, k, v, masking, call)
                weights = None if weights is None else cached.weights_by_slot(weights, k.shape[1])
            cache.keep(cached, self.visibility.reach_back)
        if own is not None:
            out = exclude_own_value(out, own)
        if self.g_proj is not None:
            out = gate_heads(out.flatten(2).unflatten(2, (self.num_heads, -1)), self.g_proj(x))
        out = project(self.o_proj, out.flatten(2))
        return out if shared is None else (out, weights)

    def own_value(self, v: Tensor) -> Tensor:
        """What `exclusive` removes: the value of the query's own token. v is (B, Nq, G, D), before any mixing."""
        return v

    def rotate_keys(self, k: Tensor, rotation: Rotation) -> Tensor:
        """k (B, Nq, G, D), rotated to the positions of its tokens."""
        return rotation(k)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call) -> tuple[Tensor, Tensor | None]:
        return self.attend_with_weights(q, k, v, masking, call) if call.with_weights else (
            self.attend(q, k, v, masking, call), None
        )  # fmt: skip

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, N, E) to q (B, N, H, D) and k, v (B, N, G, D), before RoPE."""
        q = project(self.q_proj, x).unflatten(-1, (self.num_heads, self.head_dim))
        k = project(self.k_proj, x).unflatten(-1, (self.num_kv_heads, self.head_dim))
        v = project(self.v_proj, x).unflatten(-1, (self.num_kv_heads, self.head_dim))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k, v

    @abstractmethod
    def attend(
        self,
        q: Tensor,  # (B, Nq, H, D), rotated; the last Nq of the N tokens
        k: Tensor,  # (B, N, G, D), rotated
        v: Tensor,  # (B, N, G, D)
        masking: Masking,
        call: Call,
    ) -> Tensor:  # (B, Nq, H, D)
        """The mechanism itself."""

    def attend_with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call
    ) -> tuple[Tensor, Tensor]:
        """The output of `attend` by the plain formula, and the attention weights."""
        raise ValueError(f"{type(self).__name__} has no attention weights to show: use a backend other than eager")

    def decode(self, q: Tensor, cached: Cached, call: Call) -> Tensor:
        """One new token q (B, 1, H, D) against the cache: (B, 1, H, D)."""
        k, v, masking = self._last_is_newest(cached)
        return self.attend(q, k, v, masking, call)

    def decoding_mask(self, cached: Cached, call: Call) -> Tensor | None:
        """Mask of the newest token over the T cached tokens, (1 or B, H'*P_q*P_k, T), 0 or -inf; None if it sees all.

        Layers of a model that need the same mask share it.
        """
        rule, T = self.visibility, cached.num_tokens
        own_token_whole = rule.causal == "token" or rule.num_pseudo_heads == 1
        everything = own_token_whole and (rule.window is None or rule.window >= T) and not cached.has_unfilled_slots
        if everything and cached.key_padding_mask is None and cached.document_ids is None:
            return None
        # The compiler treats a number in a dictionary key as a constant: it would recompile for every token.
        memo = None if call.shared is None or torch.compiler.is_compiling() else call.shared.decoding_masks
        key = (rule, cached.first, T, self.num_mixed_heads)
        if memo is not None and key in memo:
            return memo[key]
        masking = Masking(rule, cached.key_padding_mask, cached.document_ids)
        # Device and dtype come from the cached keys: a projection's weight may be offloaded or quantised.
        visible = visible_to_newest(masking, cached.newest, cached.first, T, cached.k.device)
        mask = additive_mask(visible, self.num_mixed_heads, cached.k.dtype)
        if memo is not None:
            memo[key] = mask
        return mask

    def _last_is_newest(self, cached: Cached) -> tuple[Tensor, Tensor, Masking]:
        """Keys and values (B, N, G, D) and their masking for `attend`, which needs the newest token to be the last."""
        k, v = cached.k.transpose(1, 2), cached.v.transpose(1, 2)
        padding, documents = cached.key_padding_mask, cached.document_ids
        if not cached.has_unfilled_slots:
            return k, v, Masking(self.visibility, padding, documents)
        if not cached.is_rotated:
            N = int(cached.newest) + 1 - cached.first
            padding, documents = (None if t is None else t[:, :N] for t in (padding, documents))
            return k[:, :N], v[:, :N], Masking(self.visibility, padding, documents)
        order = cached.filled_last()  # unfilled slots first, masked as padding
        real = (order < cached.newest + 1 - cached.first).expand(k.shape[0], cached.num_tokens)
        real = real if padding is None else real & padding[:, order]
        documents = None if documents is None else documents[:, order]
        return k[:, order], v[:, order], Masking(self.visibility, real, documents)

    def _rotation(self, q: Tensor, cache: LayerCache | None) -> Rotation | None:
        if self.rope_theta is None:
            return None
        seen = 0 if cache is None else int(cache.num_tokens_seen)
        return rotation_by_theta(
            seen, q.shape[1], self.rotary_stride, self.head_dim, self.rope_theta, wide(q.dtype), q.device
        )

    def _check_inputs(
        self, x: Tensor, key_padding_mask: Tensor | None, document_ids: Tensor | None, cache: LayerCache | None
    ) -> None:
        """Refuse bad inputs before anything is computed and before the cache is touched."""
        if x.dim() != 3 or x.shape[-1] != self.embed_dim:
            raise ValueError(f"x must be (B, N, embed_dim={self.embed_dim}), got shape {tuple(x.shape)}")
        check_masking(Masking(self.visibility, key_padding_mask, document_ids), x)
        if cache is None:
            return
        if self.cache_obstacle is not None:
            raise ValueError(self.cache_obstacle)
        if self.causal is None:
            raise ValueError("a cache needs causal attention: with causal=None earlier outputs would change")
        if isinstance(cache, KVCache):
            cache.check(x.shape[0], document_ids)

    def extra_repr(self) -> str:
        parts = [f"embed_dim={self.embed_dim}", f"num_heads={self.num_heads}"]
        if self.num_kv_heads != self.num_heads:
            parts.append(f"num_kv_heads={self.num_kv_heads}")
        parts.append(f"causal={self.causal!r}")
        if self.window is not None:
            parts.append(f"window={self.window}")
        if self.rope_theta is not None:
            parts.append(f"rope_theta={self.rope_theta:g}")
        if self.dropout:
            parts.append(f"dropout={self.dropout}")
        if self.gate is not None:
            parts.append(f"gate={self.gate!r}")
        if self.exclusive:
            parts.append("exclusive=True")
        return ", ".join(parts)


def _check(
    embed_dim: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int | None,
    causal: Causality,
    window: int | None,
    rope_theta: float | None,
) -> None:
    sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
    for name, value in sizes.items():
        if value is not None and type(value) is not int:
            raise ValueError(f"{name} must be a whole number, got {value!r}")
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if head_dim is None and embed_dim % num_heads:
        raise ValueError(f"num_heads must divide embed_dim (or give head_dim): {num_heads} heads, {embed_dim} wide")
    if num_heads % num_kv_heads:
        raise ValueError(f"num_kv_heads must divide num_heads: {num_kv_heads} k/v heads, {num_heads} heads")
    if causal not in CAUSALITIES:
        raise ValueError(f"causal must be one of {CAUSALITIES}, got {causal!r}")
    if window is not None and (type(window) is not int or window < 1):
        raise ValueError(f"window must be a whole number of at least 1 token or None, got {window!r}")
    if rope_theta is not None and not (math.isfinite(rope_theta) and rope_theta > 0):
        raise ValueError(f"rope_theta must be positive and finite, got {rope_theta!r}")
