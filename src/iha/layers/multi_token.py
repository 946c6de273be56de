"""Multi-token attention as a layer."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from iha.layers.base import SelfAttention
from iha.layers.call import Call
from iha.layers.costs import UnitCosts
from iha.ops.differential import lambda_init_at
from iha.ops.masking import Masking
from iha.ops.multi_token import group_norm, multi_token_attention


class MultiTokenAttention(SelfAttention):
    """Self-attention with convolutions over queries and keys before the softmax and over heads after it
    (Golovneva et al. 2025). All kernels start as the identity.

    Args:
        query_kernel, key_kernel: cq and ck, the convolution's extent over earlier queries and over nearby keys.
        head_kernel: ch, the number of heads per mixing group; must divide num_heads.
        depth: the layer's index in its model, from 0; it scales the norm by 1 - lambda_init(depth). None: no norm.
        chunk: queries computed at once; None limits a block's logits to 16 MiB. Changes memory use, not results.
        options: as for `iha.InterleavedHeadAttention`, without `backend`.
    """

    knows_depth = True
    cache_obstacle = "multi-token attention has no cache: its rows need the queries before them, too"
    kernel_obstacle = "its logits are convolved over queries and keys before the softmax"

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        query_kernel: int = 6,
        key_kernel: int = 11,
        head_kernel: int = 2,
        depth: int | None = 0,
        chunk: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        sizes = {"query_kernel": query_kernel, "key_kernel": key_kernel, "head_kernel": head_kernel, "chunk": chunk}
        for name, size in sizes.items():
            if size is not None and size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        if num_heads % head_kernel:
            raise ValueError(f"head_kernel must divide num_heads: groups of {head_kernel}, {num_heads} heads")
        self.depth, self.chunk = depth, chunk
        self.lambda_init = 0.0 if depth is None else lambda_init_at(depth)
        like = self.q_proj.weight
        self.key_query_kernel = nn.Parameter(like.new_empty(num_heads, query_kernel, key_kernel))
        self.head_kernel = nn.Parameter(like.new_empty(num_heads // head_kernel, head_kernel, head_kernel))
        self.norm_weight = None if depth is None else nn.Parameter(like.new_empty(self.head_dim))
        self.reset_mixing()

    @torch.no_grad()
    def reset_mixing(self) -> None:
        """Reinitialise the kernels to the identity and the norm to 1; the projections stay."""
        self.key_query_kernel.zero_()
        self.key_query_kernel[:, 0, (self.key_query_kernel.shape[2] - 1) // 2] = 1
        for group in self.head_kernel:
            nn.init.eye_(group)
        if self.norm_weight is not None:
            nn.init.ones_(self.norm_weight)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call) -> Tensor:
        out = multi_token_attention(
            q, k, v, self.key_query_kernel, self.head_kernel, **masking.keywords, chunk=self.chunk
        )
        return out if self.norm_weight is None else group_norm(out, self.norm_weight, self.lambda_init)

    def num_mixing_parameters(self) -> int:
        """By formula: H·cq·ck, H·ch for the heads, and D for the norm."""
        norm = 0 if self.norm_weight is None else self.head_dim
        _, cq, ck = self.key_query_kernel.shape
        return self.num_heads * (cq * ck + self.head_kernel.shape[1]) + norm

    def unit_costs(self) -> UnitCosts:
        """Per (query, key) pair and head: cq·ck taps of the convolution and ch heads of the group."""
        _, cq, ck = self.key_query_kernel.shape
        ch = self.head_kernel.shape[1]
        mixing = 2 * self.num_heads * (cq * ck + ch)
        return replace(super().unit_costs(), patterns_per_head=ch, mixing_per_pair=mixing)

    def extra_repr(self) -> str:
        _, cq, ck = self.key_query_kernel.shape
        return f"{super().extra_repr()}, kernels=({cq}, {ck}, {self.head_kernel.shape[1]}), depth={self.depth}"
