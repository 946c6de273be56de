"""Attention over tokens with few distinct states: exact, and several times as fast as the general layers.

A token of relation composition is a bit at a position, so what enters the one attention layer is one of 2 N vectors,
whatever the example. Scores, their exponentials and the sums over pseudo-heads are functions of *states* and are
computed once per step for the whole batch. What is left per example is adding up the states it holds: for IHA one
vector per key instead of P x P products, for 2-simplicial attention one product over pairs instead of seven and no
exponential. The results equal those of the layers up to rounding (tested). A softmax is shifted by the largest score of
all states (2-simplicial: of those that meet), not only of those present; a token whose sum then becomes too small for
float32 is computed again alone. Weights are not kept for the backward pass: to compute them again costs less than
memory does. The loops are in `state_kernels`.
"""

import torch
from torch import Tensor

from iha.layers.base import SelfAttention
from iha.layers.interleaved import InterleavedHeadAttention
from iha.layers.multihead import MultiHeadAttention
from iha.layers.simplicial import SimplicialAttention
from iha.ops.mixing import is_per_head
from iha.synthetic.state_kernels import Collapse, Pairs, Tokens, Triples

_LARGEST_TABLE = 1 << 30  # bytes; the paper's longest task needs 256 MB
_LAYERS = (MultiHeadAttention, InterleavedHeadAttention, SimplicialAttention)


def table_bytes(attention: SelfAttention, num_states: int) -> int:
    """Bytes of the weights of all pairs, or triples, of states: what a step computes, though never all at once."""
    keys = num_states**2 if isinstance(attention, SimplicialAttention) else num_states * attention.num_pseudo_heads**2
    return 4 * attention.num_heads * num_states * keys


def fits(attention: SelfAttention, num_states: int) -> bool:
    """Whether the kernels support this layer: bidirectional and global (2-simplicial attention may have a window of
    second keys), without RoPE, QK-norm or grouped heads, with as many pseudo-keys as pseudo-queries and mixed heads as
    heads, with heads that fill vector registers, and with a table of moderate size."""
    if type(attention) not in _LAYERS or attention.head_dim % 8 or table_bytes(attention, num_states) > _LARGEST_TABLE:
        return False
    if attention.gate is not None or attention.exclusive:
        return False
    if isinstance(attention, SimplicialAttention) and attention.windows[0] is not None:
        return False
    plain = attention.causal is None and attention.window is None and attention.rope_theta is None
    alike = attention.num_pseudo_keys is None and attention.num_mixed_heads == attention.num_heads
    return plain and alike and attention.q_norm is None and attention.num_kv_heads == attention.num_heads


def attend_states(attention: SelfAttention, x: Tensor, tokens: Tokens) -> Tensor:
    """Output (rows, E) of `attention` for tokens whose states have the vectors x (S, E); F rows are tokens."""
    if not fits(attention, len(x)):
        raise ValueError(f"no state kernel for {type(attention).__name__} as it is set up here")
    if x.dtype != torch.float32 or x.device.type != "cpu":
        raise ValueError(f"the state kernels take float32 on the CPU, got {x.dtype} on {x.device}")
    q, k, v = (t[0] for t in attention.project(x[None]))  # (S, H, D); of 2-simplicial attention k, v (S, H, 2D)
    scale = attention.head_dim**-0.5
    if isinstance(attention, SimplicialAttention):
        (k1, k2), (v1, v2) = k.chunk(2, dim=-1), v.chunk(2, dim=-1)
        k2, v2 = k2 + attention.key_offset, v2 + attention.value_offset
        window = attention.windows[1] or tokens.positions
        heads = Triples.apply(tokens, scale, window, *(t.transpose(0, 1).contiguous() for t in (q, k1, k2, v1, v2)))
    elif isinstance(attention, InterleavedHeadAttention):
        P = attention.num_pseudo_heads
        alphas = (attention.alpha_q, attention.alpha_k, attention.alpha_v)
        # (H, S, P, D): the pseudo-heads of the states
        mixed = [torch.einsum("mhp,smd->hspd", a, t).contiguous() for a, t in zip(alphas, (q, k, v), strict=True)]
        pseudo = Pairs.apply(tokens, scale, *mixed)  # (rows, H, P, D)
        R: Tensor = attention.collapse
        if is_per_head(R, attention.num_heads, P):
            R = (torch.eye(attention.num_heads)[:, :, None] * R).flatten(1)  # zero between different heads
        heads = Collapse.apply(pseudo, R.contiguous())
    else:
        heads = Pairs.apply(tokens, scale, *(t.transpose(0, 1)[:, :, None].contiguous() for t in (q, k, v)))
    return attention.o_proj(heads.flatten(1))
