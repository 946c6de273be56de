"""What every self-attention layer here shares: four projections, padding, and incremental decoding with a cache.

A mechanism subclasses `SelfAttention`, adds its own parameters and says how projected heads attend.
"""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from iha.layers.cache import KVCache
from iha.layers.costs import StatesItsCosts
from iha.ops.checks import CAUSALITIES
from iha.ops.visibility import Causality, Visibility


class SelfAttention(StatesItsCosts, nn.Module):
    """Drop-in self-attention: (B, N, embed_dim) to (B, N, embed_dim)."""

    num_pseudo_heads: int = 1  # P; only IHA has more
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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        _check(embed_dim, num_heads, num_kv_heads, head_dim, causal, window)
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, num_kv_heads  # E, H, G
        self.head_dim = embed_dim // num_heads if head_dim is None else head_dim  # D
        if rope_theta is not None and self.head_dim % 2:
            raise ValueError(f"RoPE turns pairs of features: head_dim must be even, got {self.head_dim}")
        self.causal, self.window, self.rope_theta = causal, window, rope_theta
        out_bias = bias if out_bias is None else out_bias
        self.has_bias, self.has_out_bias, self.has_qk_norm = bias, out_bias, qk_norm_eps is not None
        options: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.q_proj = nn.Linear(embed_dim, num_heads * self.head_dim, **options)
        self.k_proj = nn.Linear(embed_dim, num_kv_heads * self.head_dim, **options)
        self.v_proj = nn.Linear(embed_dim, num_kv_heads * self.head_dim, **options)
        self.o_proj = nn.Linear(num_heads * self.head_dim, embed_dim, out_bias, device=device, dtype=dtype)
        # QK-norm (Qwen3 and others): each head's query and key, of width D, normalised before RoPE.
        self.q_norm, self.k_norm = (
            None if qk_norm_eps is None else nn.RMSNorm(self.head_dim, qk_norm_eps, device=device, dtype=dtype)
            for _ in range(2)
        )

    @property
    def visibility(self) -> Visibility:
        return Visibility(self.causal, self.window, self.num_pseudo_heads)

    def forward(
        self,
        x: Tensor,  # (B, N, E)
        *,
        key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token
        document_ids: Tensor | None = None,  # (B, N) int, attention stays inside a document
        cache: KVCache | None = None,
    ) -> Tensor:  # (B, N, E)
        """With a cache, x holds the tokens after those the cache has seen, in chunks of any size."""
        if x.dim() != 3 or x.shape[-1] != self.embed_dim:
            raise ValueError(f"x must be (B, N, embed_dim={self.embed_dim}), got shape {tuple(x.shape)}")
        if key_padding_mask is not None:
            if key_padding_mask.shape != x.shape[:2] or key_padding_mask.dtype != torch.bool:
                got = f"{tuple(key_padding_mask.shape)} of {key_padding_mask.dtype}"
                raise ValueError(f"key_padding_mask must be (B, N) = {tuple(x.shape[:2])} of bool, got {got}")
            # Here and not only on the heads: the projections' gradients would meet whatever padding holds.
            x = x.masked_fill(~key_padding_mask[:, :, None], 0)
        q, k, v = self.project(x)
        if cache is not None:
            if self.causal is None:
                raise ValueError("a cache needs causal attention: with causal=None earlier outputs would change")
            keep = self.visibility.reach_back
            k, v, key_padding_mask, document_ids = cache.append(k, v, key_padding_mask, document_ids, keep)
        return self.o_proj(self.attend(q, k, v, key_padding_mask, document_ids).flatten(2))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, N, E) to q (B, N, H, D) and k, v (B, N, G, D), before RoPE."""
        q = self.q_proj(x).unflatten(-1, (self.num_heads, self.head_dim))
        k = self.k_proj(x).unflatten(-1, (self.num_kv_heads, self.head_dim))
        v = self.v_proj(x).unflatten(-1, (self.num_kv_heads, self.head_dim))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k, v

    @abstractmethod
    def attend(
        self,
        q: Tensor,  # (B, Nq, H, D), the last Nq of the N tokens
        k: Tensor,  # (B, N, G, D), before RoPE
        v: Tensor,  # (B, N, G, D)
        key_padding_mask: Tensor | None,  # (B, N)
        document_ids: Tensor | None,  # (B, N)
    ) -> Tensor:  # (B, Nq, H, D)
        """The mechanism itself."""

    def extra_repr(self) -> str:
        parts = [f"embed_dim={self.embed_dim}", f"num_heads={self.num_heads}"]
        if self.num_kv_heads != self.num_heads:
            parts.append(f"num_kv_heads={self.num_kv_heads}")
        parts.append(f"causal={self.causal!r}")
        if self.window is not None:
            parts.append(f"window={self.window}")
        if self.rope_theta is not None:
            parts.append(f"rope_theta={self.rope_theta:g}")
        return ", ".join(parts)


def _check(
    embed_dim: int, num_heads: int, num_kv_heads: int, head_dim: int | None, causal: Causality, window: int | None
) -> None:
    sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if head_dim is None and embed_dim % num_heads:
        raise ValueError(f"num_heads must divide embed_dim (or give head_dim): {num_heads} heads, {embed_dim} wide")
    if num_heads % num_kv_heads:
        raise ValueError(f"num_kv_heads must divide num_heads: {num_kv_heads} k/v heads, {num_heads} heads")
    if causal not in CAUSALITIES:
        raise ValueError(f"causal must be one of {CAUSALITIES}, got {causal!r}")
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1 token or None, got {window}")
