"""Interleaved head attention: mix → interleave → rotate → attend → collapse. Layers and models call this function."""

import torch
from torch import Tensor

from iha.ops import reference
from iha.ops.backends.attention import attend
from iha.ops.backends.banded import banded_attention
from iha.ops.backends.case import Case
from iha.ops.backends.dispatch import choose_backend
from iha.ops.checks import check_dropout, check_masking, check_options, check_tensors
from iha.ops.inputs import as_autocast, zero_padding
from iha.ops.masking import Masking
from iha.ops.mixing import collapse_pseudo_heads, mix, pseudo_queries_as_heads
from iha.ops.precision import wide
from iha.ops.rotary import rotary_table, rotate
from iha.ops.visibility import Causality


def interleaved_head_attention(
    q: Tensor,  # (B, Nq, H, D), the last Nq of the N tokens
    k: Tensor,  # (B, N, G, D)
    v: Tensor,  # (B, N, G, D)
    alpha_q: Tensor,  # (H, H', P_q), indexed [source head, head, pseudo-head]; in the paper (H, H, P)
    alpha_k: Tensor,  # (G, G', P_k)
    alpha_v: Tensor,  # (G, G', P_k)
    collapse: Tensor,  # (H, P_q) or (H, H'*P_q)
    *,
    causal: Causality = "virtual",
    window: int | None = None,
    rope_theta: float | None = None,
    rope_positions: str = "virtual",
    pseudo_rotary: tuple[Tensor, Tensor] | None = None,  # cos and sin, (P, D/2) each
    key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token
    document_ids: Tensor | None = None,  # (B, N) int
    scale: float | None = None,
    backend: str = "auto",
    dropout_p: float = 0.0,
) -> Tensor:  # (B, Nq, H, D)
    """Interleaved head attention (Algorithm 1 of arXiv 2602.21371), differentiable in all seven tensors.

    Virtual index i = n*P + p, from 0, for token n and pseudo-head p.

    Args:
        q, k, v: projected heads. k and v may have G < H heads, G dividing H: query head h reads head h*G // H. q may
            hold only the last Nq <= N tokens (decoding, chunked prefill): its first row is then token N - Nq.
        alpha_q, alpha_k, alpha_v: the mixing weights of the P pseudo-heads. Queries may have another number of them,
            P_q, than keys and values, P_k: then `causal` and `rope_positions` must not be "virtual". The H heads may
            be mixed into H' others, and the G heads of k and v into G', G' dividing H': then R is (H, H'*P_q).
        collapse: R, per head (H, P) as in Algorithm 1 or over all heads (H, H*P) as in Definition 3.
        causal: which keys j query i sees. "virtual": j <= i (Algorithm 1). "token": all pseudo-heads of its own and
            earlier tokens. None: all keys.
        window: sliding window in tokens, including the query's own. With causal="virtual": i - j < window*P. With
            "token": token(i) - token(j) < window. With None: abs(token(i) - token(j)) < window.
        rope_theta: base of RoPE (half-split convention); no RoPE when None.
        rope_positions: "virtual", position i; "token", position n.
        pseudo_rotary: replaces rope_theta for callers that keep rotary tables and rotated keys (models, decoding). q
            and k are then already rotated to position n*P; pseudo-head p is rotated further by row p of this table.
        key_padding_mask: False marks padding, at any position. A padded token attends to nothing and is not attended
            to. Its output row is zero, and its contents (even NaN) reach no other output and no gradient.
        document_ids: tokens attend only to tokens with the same id (packed documents).
        scale: factor on the scores; 1/sqrt(D) when None.
        backend: "auto" chooses one. A named backend that cannot run the call raises a ValueError with the reason.
        dropout_p: the probability that a weight between two virtual tokens is dropped, as in
            `scaled_dot_product_attention`: always applied, so pass 0 when not training. Only "sdpa" without masks can
            do it; everything else takes the plain formula, with (N*P)² weights in memory.
    """
    q, k, v, alpha_q, alpha_k, alpha_v, collapse = as_autocast(q, k, v, alpha_q, alpha_k, alpha_v, collapse)
    check_tensors(q, k, v, alpha_q, alpha_k, alpha_v, collapse)
    Nq, N, P_q, P_k = q.shape[1], k.shape[1], alpha_q.shape[2], alpha_k.shape[2]
    check_options(rope_theta, rope_positions, scale, backend, q.shape[-1], (P_q, P_k))
    masking = Masking.of(
        causal,
        window,
        key_padding_mask,
        document_ids,
        num_pseudo_heads=P_q,
        num_pseudo_keys=None if P_q == P_k else P_k,
    )
    check_masking(masking, k)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if pseudo_rotary is not None and (rope_theta is not None or backend == "reference"):
        raise ValueError("pseudo_rotary takes the place of rope_theta, and the reference does not know it")
    if pseudo_rotary is not None and P_q != P_k:
        raise ValueError(f"pseudo_rotary holds virtual positions: {P_q} pseudo-queries and {P_k} pseudo-keys have none")

    check_dropout(dropout_p)
    if backend == "reference":
        if dropout_p:
            raise ValueError("backend='reference' cannot do this: Algorithm 1 has no dropout; use 'auto'")
        return reference.interleaved_head_attention(
            q, k, v, alpha_q, alpha_k, alpha_v, collapse,
            **masking.keywords, rope_theta=rope_theta, rope_positions=rope_positions, scale=scale,
        )  # fmt: skip

    q, k, v = zero_padding(key_padding_mask, q, k, v)
    if rope_theta is not None:
        # RoPE acts on features and mixing on heads, so they commute. The H heads are rotated to position n*P (or n)
        # before mixing makes P times as many. With virtual positions, pseudo-head p then only needs a rotation by p.
        stride = P_q if rope_positions == "virtual" else 1
        positions = stride * torch.arange(N, device=q.device)
        q, k = rotate(q, positions[N - Nq :], rope_theta), rotate(k, positions, rope_theta)
        if stride > 1:
            offsets = torch.arange(P_q, device=q.device)
            pseudo_rotary = rotary_table(offsets, q.shape[-1], rope_theta, wide(q.dtype))

    if masking.visibility.queries_are_heads:  # then every backend can do it, and without a mask where multi-head can
        masking, P_q = masking.ruled_by(masking.visibility.of_heads()), 1
        alpha_q, collapse = pseudo_queries_as_heads(alpha_q, collapse)
    case = Case.of(q, k, v, masking, num_tokens=(Nq, N), dropout=dropout_p > 0)
    chosen, masking = choose_backend(case, backend), masking.ruled_by(case.visibility)
    if chosen == "banded":
        return banded_attention(q, k, v, alpha_q, alpha_k, alpha_v, collapse, masking, pseudo_rotary, scale)
    q, k, v = mix(q, alpha_q, pseudo_rotary), mix(k, alpha_k, pseudo_rotary), mix(v, alpha_v)  # (B, N*P, heads, D)
    out = attend(q, k, v, masking, scale=scale, backend=backend, dropout_p=dropout_p)  # (B, Nq*P_q, H', D)
    return collapse_pseudo_heads(out, collapse, P_q)  # (B, Nq, H, D)
