"""Cross-attention as layers: the tokens of one sequence attend to another sequence, whose keys and values are computed
once (`remember`) and serve every later query."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from iha.layers.base import SelfAttention
from iha.layers.call import Shared
from iha.layers.costs import Flops
from iha.layers.interleaved import InterleavedHeadAttention
from iha.layers.multihead import MultiHeadAttention
from iha.ops.cross import (
    check_memory,
    interleaved_cross_attention,
    multihead_cross_attention,
    visible_memory,
    without_padding,
)
from iha.ops.decoding import additive_mask, decode_interleaved, decode_multihead
from iha.ops.inputs import as_autocast
from iha.ops.output import Gate, gate_heads


class Memory(NamedTuple):
    """What a layer needs of the sequence that is attended to: un-mixed heads, 1/P of the size of pseudo-heads."""

    k: Tensor  # (B, G, N, D)
    v: Tensor  # (B, G, N, D)
    key_padding_mask: Tensor | None = None  # (B, N) bool, True = a real token


class CrossAttention(SelfAttention):
    """Base of cross-attention: the projections, the gate and the costs of a mechanism's self-attention layer.

    `layer(x, layer.remember(states))` maps x (B, Nq, E) and states (B, N, E) to (B, Nq, E). There is no causality, no
    window and no RoPE. A token has no own value in another sequence, so there is no exclusive attention.
    """

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
        gate: Gate | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **own: Any,
    ) -> None:
        for name in ("causal", "window", "rope_theta", "rope_positions", "exclusive", "dropout", "backend"):
            if name in own:
                raise ValueError(f"cross-attention has no {name}, got {name}={own[name]!r}")
        super().__init__(
            embed_dim, num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, bias=bias, out_bias=out_bias,
            qk_norm_eps=qk_norm_eps, causal=None, gate=gate, device=device, dtype=dtype, **own,
        )  # fmt: skip

    def remember(
        self,
        states: Tensor,  # (B, N, E)
        key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token
    ) -> Memory:
        """Keys and values of the sequence to attend to."""
        if states.dim() != 3 or states.shape[-1] != self.embed_dim:
            raise ValueError(f"states must be (B, N, embed_dim={self.embed_dim}), got shape {tuple(states.shape)}")
        check_memory(states, key_padding_mask)
        (states,) = without_padding(key_padding_mask, states)
        k, v = (proj(states).unflatten(-1, (self.num_kv_heads, -1)) for proj in (self.k_proj, self.v_proj))
        if self.k_norm is not None:
            k = self.k_norm(k)
        k, v = without_padding(key_padding_mask, k, v)  # a bias would fill the padding again
        return Memory(k.transpose(1, 2), v.transpose(1, 2), key_padding_mask)

    def forward(  # type: ignore[override]
        self,
        x: Tensor,  # (B, Nq, E)
        memory: Memory,
        *,
        shared: Shared | None = None,
    ) -> Any:  # (B, Nq, E); with `shared`, a pair of it and the attention weights (or None)
        if x.dim() != 3 or x.shape[-1] != self.embed_dim or x.shape[0] != memory.k.shape[0]:
            raise ValueError(
                f"x must be (B={memory.k.shape[0]} as in the memory, Nq, embed_dim={self.embed_dim}), got shape "
                f"{tuple(x.shape)}"
            )
        q = self.q_proj(x).unflatten(-1, (self.num_heads, self.head_dim))
        if self.q_norm is not None:
            q = self.q_norm(q)
        weights = None
        if q.shape[1] == 1 and (shared is None or not shared.with_weights):
            out = self.decode_from(q, memory)
        else:
            out, weights = self.attend_to(q, memory, shared is not None and shared.with_weights)
        if self.g_proj is not None:
            out = gate_heads(out, self.g_proj(x))
        out = self.o_proj(out.flatten(2))
        return out if shared is None else (out, weights)

    def attend_to(self, q: Tensor, memory: Memory, with_weights: bool) -> tuple[Tensor, Tensor | None]:
        """The mechanism itself: q (B, Nq, H, D) to (B, Nq, H, D), and the attention weights if asked for."""
        raise NotImplementedError

    def decode_from(self, q: Tensor, memory: Memory) -> Tensor:
        """One query token q (B, 1, H, D), without mixing the memory: (B, 1, H, D)."""
        raise NotImplementedError

    def flops(self, num_tokens: int, convention: str = "exact", *, num_keys: int | None = None) -> Flops:
        """Of `num_tokens` queries that attend to `num_keys` tokens (as many, when None), all of which they see."""
        if convention != "exact":
            raise ValueError(f"cross-attention has no mask: it is counted exactly only, not by {convention!r}")
        N, unit = num_tokens if num_keys is None else num_keys, self.unit_costs()
        queries = 2 * self.num_heads * self.head_dim + self.gate_features  # q_proj, o_proj, g_proj
        projections = 2 * self.embed_dim * (num_tokens * queries + N * 2 * self.num_kv_heads * self.head_dim)
        attention = unit.attention_per_pair * unit.patterns_per_head * num_tokens * N
        return Flops(projections, self._mixing_flops(num_tokens, N), attention)

    def _mixing_flops(self, num_queries: int, num_keys: int) -> int:
        return 0

    def cache_bytes(self, num_tokens: int, element_size: int = 2, *, pseudo_heads: bool = False) -> int:
        """Of the memory of a sequence of `num_tokens` tokens. It does not grow with the queries."""
        per_token = 2 * self.num_kv_heads * self.head_dim * element_size
        return num_tokens * per_token * (self.num_pseudo_heads if pseudo_heads else 1)


class MultiHeadCrossAttention(CrossAttention, MultiHeadAttention):
    """Multi-head cross-attention (Vaswani et al. 2017)."""

    def attend_to(self, q: Tensor, memory: Memory, with_weights: bool) -> tuple[Tensor, Tensor | None]:
        k, v = memory.k.transpose(1, 2), memory.v.transpose(1, 2)
        return multihead_cross_attention(
            q, k, v, key_padding_mask=memory.key_padding_mask, with_weights=with_weights
        )  # fmt: skip

    def decode_from(self, q: Tensor, memory: Memory) -> Tensor:
        return decode_multihead(q, memory.k, memory.v, _bias(memory, self.num_heads, 1, 1))


class InterleavedCrossAttention(CrossAttention, InterleavedHeadAttention):
    """Interleaved heads between two sequences: the P pseudo-queries of a token see the P pseudo-keys of every token of
    the memory. The arguments besides those of `CrossAttention`, `num_pseudo_heads`, `collapse` and `init`, are those of
    `iha.InterleavedHeadAttention`."""

    def attend_to(self, q: Tensor, memory: Memory, with_weights: bool) -> tuple[Tensor, Tensor | None]:
        k, v = memory.k.transpose(1, 2), memory.v.transpose(1, 2)
        return interleaved_cross_attention(
            q, k, v, *self.mixing, key_padding_mask=memory.key_padding_mask, with_weights=with_weights
        )  # fmt: skip

    def decode_from(self, q: Tensor, memory: Memory) -> Tensor:
        """alpha_k is applied to the query and alpha_v to the output, so the memory is read un-mixed."""
        (_, heads, P_q), P_k = self.alpha_q.shape, self.alpha_k.shape[2]
        bias = _bias(memory, heads, P_q, P_k)
        return decode_interleaved(q, memory.k, memory.v, *as_autocast(*self.mixing), bias=bias)

    def _mixing_flops(self, num_queries: int, num_keys: int) -> int:
        """alpha_q and R act on queries, alpha_k and alpha_v on keys: D multiply-adds per weight and token."""
        per_query = self.alpha_q.numel() + self.collapse.numel()
        return 2 * self.head_dim * (num_queries * per_query + num_keys * (self.alpha_k.numel() + self.alpha_v.numel()))


CROSS_MECHANISMS: dict[str, type[CrossAttention]] = {
    "iha": InterleavedCrossAttention,
    "multihead": MultiHeadCrossAttention,
}


def _bias(memory: Memory, num_heads: int, P_q: int, P_k: int) -> Tensor | None:
    """The memory's padding as the bias of the two decoding functions, (B, H*P_q*P_k, N); None without padding."""
    if memory.key_padding_mask is None:
        return None
    visible = visible_memory(memory.key_padding_mask)[:, None, None].expand(-1, P_q, P_k, -1)
    return additive_mask(visible, num_heads, memory.k.dtype)
