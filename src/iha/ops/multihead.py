"""Multi-head attention with grouped (GQA) or single (MQA) KV heads, global or sliding window: the baseline.

Its reference is `iha.ops.reference` with one pseudo-head and identity mixing.
"""

from torch import Tensor

from iha.ops import inputs
from iha.ops.backends.attention import attend
from iha.ops.masking import Masking
from iha.ops.visibility import Causality


def multihead_attention(
    q: Tensor,  # (B, Nq, H, D), the last Nq of the N tokens
    k: Tensor,  # (B, N, G, D)
    v: Tensor,  # (B, N, G, D)
    *,
    causal: Causality = "virtual",
    window: int | None = None,
    rope_theta: float | None = None,
    key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token
    document_ids: Tensor | None = None,  # (B, N) int
    scale: float | None = None,
    backend: str = "auto",
    dropout_p: float = 0.0,
) -> Tensor:  # (B, Nq, H, D)
    """softmax(q kᵀ · scale) v per head (Vaswani et al. 2017). Arguments as in `iha.interleaved_head_attention`."""
    masking = Masking.of(causal, window, key_padding_mask, document_ids)
    factor, q, (k, v) = inputs.prepare(
        q, {"k": k, "v": v}, ("k",), masking, rope_theta=rope_theta, scale=scale, backend=backend,
    )  # fmt: skip
    if v.shape != k.shape:
        raise ValueError(f"k and v must have the same shape: k {tuple(k.shape)}, v {tuple(v.shape)}")
    return attend(q, k, v, masking, scale=factor, backend=backend, dropout_p=dropout_p)
