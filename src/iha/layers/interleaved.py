"""Interleaved head attention as a layer."""

from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from iha.layers.base import SelfAttention
from iha.layers.cache import Cached
from iha.layers.call import Call
from iha.layers.costs import UnitCosts
from iha.layers.initialisation import INITIALISATIONS, Initialisation
from iha.ops.backends.dispatch import BACKENDS, Backend
from iha.ops.backends.formula import attend_with_weights
from iha.ops.checks import ROPE_POSITIONS, RopePositions, check_dropout
from iha.ops.decoding import decode_interleaved
from iha.ops.inputs import as_autocast, zero_padding
from iha.ops.interleaved import interleaved_head_attention
from iha.ops.masking import Masking
from iha.ops.mixing import collapse_pseudo_heads, mix
from iha.ops.output import Gate
from iha.ops.visibility import Causality

Collapse = Literal["per_head", "full"]
COLLAPSES: tuple[Collapse, ...] = get_args(Collapse)


class InterleavedHeadAttention(SelfAttention):
    """Self-attention whose every head attends with P pseudo-heads, learned mixtures of all heads (Algorithm 1).

    Drop-in for a multi-head self-attention block: `layer(x)` maps (B, N, embed_dim) to (B, N, embed_dim). For decoding,
    pass the same `iha.KVCache` to every call. It holds the un-mixed heads, 1/P of the size of a pseudo-head cache.

    Args:
        embed_dim, num_heads, num_pseudo_heads: width E, heads H and pseudo-heads per head P.
        num_kv_heads: G < H KV heads (grouped-query attention); H when None.
        head_dim: D; embed_dim // num_heads when None.
        bias: whether the four projections have a bias; out_bias: the same for the output projection, if it differs.
        qk_norm_eps: if given, queries and keys are RMS-normalised per head (QK-norm) with this epsilon.
        causal, window, rope_theta, rope_positions, backend: as for `iha.interleaved_head_attention`.
        collapse: "per_head", R of shape (H, P) as in Algorithm 1, or "full", (H, H*P) as in Definition 3.
        dropout: probability that an attention weight is dropped in training (`layer.eval()` switches it off). Slower
            and with (N*P)² weights in memory where there is a window, padding or documents.
        gate: if given, the output is multiplied by a sigmoid of the hidden state (gated attention), by one number per
            head ("headwise") or per feature of every head ("elementwise").
        exclusive: whether each head's output loses its component along the token's own value, taken before mixing
            (exclusive self-attention).
        init: initialisation of alpha and R, one of `INITIALISATIONS`. With "warm_start" the layer computes exactly
            multi-head attention with the same projections, until training changes alpha or R.
    """

    takes_dropout = True
    has_pseudo_heads = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_pseudo_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = False,
        out_bias: bool | None = None,
        qk_norm_eps: float | None = None,
        causal: Causality = "virtual",
        window: int | None = None,
        rope_theta: float | None = None,
        rope_positions: RopePositions = "virtual",
        collapse: Collapse = "per_head",
        init: Initialisation = "one_hot",
        backend: Backend = "auto",
        dropout: float = 0.0,
        gate: Gate | None = None,
        exclusive: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, bias=bias,
            out_bias=out_bias, qk_norm_eps=qk_norm_eps, causal=causal, window=window, rope_theta=rope_theta,
            gate=gate, exclusive=exclusive, device=device, dtype=dtype,
        )  # fmt: skip
        check_dropout(dropout)
        self.dropout = dropout
        if num_pseudo_heads < 1:
            raise ValueError(f"num_pseudo_heads must be at least 1, got {num_pseudo_heads}")
        _check_choice("rope_positions", rope_positions, ROPE_POSITIONS)
        _check_choice("collapse", collapse, COLLAPSES)
        _check_choice("init", init, tuple(INITIALISATIONS))
        _check_choice("backend", backend, BACKENDS)
        if init == "warm_start" and num_pseudo_heads > 1 and rope_theta is not None and rope_positions == "virtual":
            raise ValueError(
                f"init='warm_start' cannot be exact with rope_positions='virtual' and {num_pseudo_heads} pseudo-heads: "
                "the copies of a key would be rotated by different angles; use rope_positions='token'"
            )
        self.num_pseudo_heads = num_pseudo_heads  # P
        self.rotary_stride = num_pseudo_heads if rope_positions == "virtual" else 1
        self.rope_positions, self.collapse_kind, self.init, self.backend = rope_positions, collapse, init, backend
        H, G, P = self.num_heads, self.num_kv_heads, num_pseudo_heads

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        self.alpha_q = parameter(H, H, P)
        self.alpha_k, self.alpha_v = parameter(G, G, P), parameter(G, G, P)
        self.collapse = parameter(H, P if collapse == "per_head" else H * P)
        self.reset_mixing()

    @torch.no_grad()
    def reset_mixing(self) -> None:
        """Reinitialise alpha and R by `init`; the projections stay."""
        H, P = self.num_heads, self.num_pseudo_heads
        per_head = torch.empty(H, P, device=self.collapse.device, dtype=self.collapse.dtype)
        INITIALISATIONS[self.init](self.alpha_q, self.alpha_k, self.alpha_v, per_head, self.causal)
        if self.collapse_kind == "full":
            heads = torch.arange(H, device=self.collapse.device)
            self.collapse.zero_().view(H, H, P)[heads, heads] = per_head
        else:
            self.collapse.copy_(per_head)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call) -> Tensor:
        return interleaved_head_attention(
            q, k, v, *self.mixing, **masking.keywords, pseudo_rotary=call.pseudo_rotary, backend=call.backend,
            dropout_p=self.dropout_p,
        )  # fmt: skip

    def attend_with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, masking: Masking, call: Call
    ) -> tuple[Tensor, Tensor]:
        """The weights are between virtual tokens, (B, H, Nq*P, N*P)."""
        q, k, v = zero_padding(masking.key_padding_mask, q, k, v)
        rotary = call.pseudo_rotary
        q, k, v = mix(q, self.alpha_q, rotary), mix(k, self.alpha_k, rotary), mix(v, self.alpha_v)
        out, weights = attend_with_weights(q, k, v, masking, dropout_p=self.dropout_p)
        return collapse_pseudo_heads(out, self.collapse, self.num_pseudo_heads), weights

    def decode(self, q: Tensor, cached: Cached, call: Call) -> Tensor:
        """The cache is not mixed. Instead alpha_k is applied to the query and alpha_v to the output, one token each."""
        rotary = None if call.rotation is None else call.rotation.query_to_key
        mask = self.decoding_mask(cached, call)
        return decode_interleaved(q, cached.k, cached.v, *as_autocast(*self.mixing), bias=mask, rotary=rotary)

    @property
    def mixing(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.alpha_q, self.alpha_k, self.alpha_v, self.collapse

    def num_mixing_parameters(self) -> int:
        """By formula: H²P + 2G²P for alpha, plus HP (per head) or H²P (full) for R; 4H²P if G = H and R is full."""
        H, G, P = self.num_heads, self.num_kv_heads, self.num_pseudo_heads
        return H * H * P + 2 * G * G * P + (H * P if self.collapse_kind == "per_head" else H * H * P)

    def unit_costs(self) -> UnitCosts:
        """P virtual queries per head see P virtual keys per token. Mixing: D multiply-adds per weight and token."""
        mixing = 2 * self.head_dim * self.num_mixing_parameters()
        return replace(super().unit_costs(), patterns_per_head=self.num_pseudo_heads**2, mixing_per_token=mixing)

    def extra_repr(self) -> str:
        mixing = f"num_pseudo_heads={self.num_pseudo_heads}, rope_positions={self.rope_positions!r}"
        return f"{super().extra_repr()}, {mixing}, collapse={self.collapse_kind!r}, init={self.init!r}"


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")
