"""What one unit of each mechanism costs: a description in numbers, from which everything else is multiplied out.

FLOPs are those of matrix products, a multiplication and its addition counted as two. Softmax, norms, RoPE and products
of two vectors feature by feature are left out, as `torch.utils.flop_counter` leaves them out.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from iha.layers.schedule import LayerSpec
from iha.ops.visibility import Causality, Visibility

# The layer's defaults, of multi-token attention: query rows, keys and heads that its kernels span.
_QUERY_KERNEL, _KEY_KERNEL, _HEAD_KERNEL = 6, 11, 2


@dataclass(frozen=True)
class AttentionShape:
    """What all layers of a model have in common."""

    embed_dim: int  # E
    num_heads: int  # H
    num_kv_heads: int | None = None  # G; as many as heads when None
    head_dim: int | None = None  # D; embed_dim // num_heads when None
    causal: Causality = "virtual"
    collapse: str = "per_head"  # of IHA
    bias: bool = False

    @property
    def G(self) -> int:  # noqa: N802
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def D(self) -> int:  # noqa: N802
        return self.embed_dim // self.num_heads if self.head_dim is None else self.head_dim

    def visibility(self, spec: LayerSpec) -> Visibility:
        return Visibility(self.causal, spec.window, spec.num_pseudo_heads)


@dataclass(frozen=True)
class Mechanism:
    """Per unit, all heads together: a token, a visible (query, key) pair, a visible triple (query, key, key)."""

    mixing_parameters: int  # beyond the four projections
    attention_per_pair: int
    patterns_per_head: int  # attention maps that a head's output combines
    flash_obstacle: str | None = None  # why no flash kernel computes it, or None
    kernel_per_pair: int | None = None  # attention_per_pair as the kernel has to do it, where that is more
    attention_per_triple: int = 0
    attention_per_key_pair: int = 0  # (key, key), whatever the query
    mixing_per_token: int = 0
    mixing_per_pair: int = 0
    key_value_sets: int = 1  # 2 where a query attends to pairs of tokens


@lru_cache(maxsize=4096)
def describe(shape: AttentionShape, spec: LayerSpec) -> Mechanism:
    """The mechanism of a layer in numbers. What the layer itself would refuse is refused here, in the same words."""
    own: dict[str, Any] = {"collapse": shape.collapse} if spec.mechanism == "iha" else {}
    spec.build(
        shape.embed_dim, shape.num_heads, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim, bias=shape.bias,
        causal=shape.causal, device="meta", **own,
    )  # fmt: skip
    H, G, D, P = shape.num_heads, shape.G, shape.D, spec.num_pseudo_heads
    scores_and_values = 4 * D * H  # a dot product of D with the key, D sums of the value
    match spec.mechanism:
        case "multihead":
            return Mechanism(0, scores_and_values, 1, _flash_obstacle(shape, spec, D))
        case "iha":
            collapse = H if shape.collapse == "per_head" else H * H
            weights = P * (H * H + 2 * G * G + collapse)  # alpha_q, alpha_k and alpha_v, R
            return Mechanism(
                weights, scores_and_values, P * P, _flash_obstacle(shape, spec, D), mixing_per_token=2 * D * weights
            )
        case "talking_heads":
            why = "every row's logits of all heads meet before the softmax"
            return Mechanism(2 * H * H, scores_and_values, H, why, mixing_per_pair=4 * H * H)
        case "differential":
            # Values are 2D wide. Kernels want keys of the same width, so they get D zeros more.
            return Mechanism(
                6 * D, 6 * D * H, 2, _flash_obstacle(shape, spec, 2 * D), kernel_per_pair=2 * scores_and_values
            )
        case "knocking_heads":
            return Mechanism(
                3 * D * D, scores_and_values, 1, _flash_obstacle(shape, spec, D), mixing_per_token=6 * D * D * G
            )
        case "multi_token":
            taps = _QUERY_KERNEL * _KEY_KERNEL
            why = "its logits are convolved over queries and keys before the softmax"
            return Mechanism(
                H * (taps + _HEAD_KERNEL) + D, scores_and_values, _HEAD_KERNEL, why,
                mixing_per_pair=2 * H * (taps + _HEAD_KERNEL),
            )  # fmt: skip
        case "simplicial":
            why = "a query attends to pairs of tokens: logits of three factors"
            return Mechanism(0, 0, 1, why, attention_per_triple=scores_and_values, key_value_sets=2)
        case "strassen":
            # q·k1, q·k2 and the last contraction a pair, k1·k2 a pair of keys, and D + 1 products of N×N matrices.
            why = "a query attends to pairs of tokens: products of N×N matrices"
            per_pair = scores_and_values + 2 * (D + 1) * H
            return Mechanism(
                0, per_pair, 1, why, attention_per_triple=2 * (D + 1) * H, attention_per_key_pair=2 * D * H,
                key_value_sets=2,
            )  # fmt: skip
    raise ValueError(f"mechanism {spec.mechanism!r} is not accounted for")


def _flash_obstacle(shape: AttentionShape, spec: LayerSpec, width: int) -> str | None:
    P = spec.num_pseudo_heads
    if width > 256 or width % 8:
        return f"heads {width} wide: flash kernels take up to 256, in steps of 8"
    if P > 1 and shape.causal == "token":
        return "causal='token': a pseudo-head sees later ones of its own token, which no flash mask says"
    if P > 1 and shape.causal is None and spec.window is not None:
        return "a two-sided window starts at token boundaries, a flash window does not"
    return None
