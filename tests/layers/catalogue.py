"""Every mechanism's layer at one small shape, and the comparison of a layer with its definition."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from iha.layers.base import SelfAttention
from iha.layers.differential import DifferentialAttention
from iha.layers.knocking_heads import KnockingHeadsAttention
from iha.layers.multi_token import MultiTokenAttention
from iha.layers.multihead import MultiHeadAttention
from iha.layers.paired_heads import PairedHeadsAttention
from iha.layers.simplicial import SimplicialAttention
from iha.layers.strassen import StrassenAttention
from iha.layers.talking_heads import TalkingHeadsAttention
from iha.ops import reference

E, H, G = 16, 4, 2  # D = 4
Build = Callable[..., SelfAttention]
# From a layer, its q (B, N, H, D), k, v (B, N, G, D) before RoPE and the options of its mask and RoPE to its heads.
Definition = Callable[..., Tensor]

LAYERS: dict[str, Build] = {
    "multihead": lambda **o: MultiHeadAttention(E, H, **o),
    "paired_heads": lambda **o: PairedHeadsAttention(E, H, **o),
    "talking_heads": lambda **o: TalkingHeadsAttention(E, H, init="random", chunk=3, **o),
    "differential": lambda **o: DifferentialAttention(E, H, depth=3, **o),
    "simplicial": lambda **o: SimplicialAttention(E, H, key_offset=0.25, value_offset=1.0, **o),
    "strassen": lambda **o: StrassenAttention(E, H, chunk=3, **o),
    "knocking_linear": lambda **o: KnockingHeadsAttention(E, H, kind="linear", **o),
    "knocking_mlp": lambda **o: KnockingHeadsAttention(E, H, kind="mlp", **o),
    "multi_token": lambda **o: MultiTokenAttention(E, H, query_kernel=3, key_kernel=4, depth=2, chunk=3, **o),
}
CASES = [
    (causal, window, masked)
    for causal, window in (("virtual", None), ("token", 4), (None, None), (None, 3))
    for masked in (False, True)
]


def build(name: str, **options: Any) -> Any:
    """A float64 layer whose own parameters are not at their tame initial values."""
    if name != "simplicial":
        options.setdefault("rope_theta", 100.0)
    layer = LAYERS[name](**({"num_kv_heads": G, "dtype": torch.float64} | options))
    with torch.no_grad():
        for own, parameter in layer.named_parameters(recurse=False):
            parameter.add_(0.3 * torch.randn_like(parameter) if not own.startswith("lambda") else 0)
    return layer


def left_padding(B: int, N: int) -> Tensor:
    return torch.arange(N)[None] >= torch.arange(B)[:, None] * 2


def multihead_reference(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    eyes = [torch.eye(t.shape[2], dtype=q.dtype)[:, :, None] for t in (q, k, v)]
    return reference.interleaved_head_attention(q, k, v, *eyes, torch.ones(H, 1, dtype=q.dtype), **options)


def assert_is_its_definition(
    name: str, definition: Definition, causal: str | None, window: int | None, masked: bool
) -> None:
    """Output and all gradients of the layer, against its projections around the definition of its operator."""
    B, N = 3, 9
    layer = build(name, causal=causal, window=window)
    x = torch.randn(B, N, E, dtype=torch.float64, requires_grad=True)
    masks = {}
    if masked:
        masks = {"key_padding_mask": left_padding(B, N), "document_ids": (torch.arange(N) // 4).expand(B, N)}
    q = layer.q_proj(x).unflatten(-1, (H, -1))
    k, v = (proj(x).unflatten(-1, (G, -1)) for proj in (layer.k_proj, layer.v_proj))
    options: dict[str, Any] = {"causal": layer.causal, "window": layer.window, "rope_theta": layer.rope_theta, **masks}
    wanted = layer.o_proj(definition(layer, q, k, v, **options).flatten(2))
    found = layer(x, **masks)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    tensors, direction = [x, *layer.parameters()], torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, tensors, direction), torch.autograd.grad(wanted, tensors, direction), strict=True
    ):
        assert one.isfinite().all()
        assert one.abs().max() > 0
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


def assert_starts_as_multihead(layer_class: Build, **own: Any) -> None:
    """With the projections of a multi-head layer, the new layer computes what that layer computes."""
    options: dict[str, Any] = {"num_kv_heads": G, "rope_theta": 1e4, "window": 5, "dtype": torch.float64}
    plain, layer = MultiHeadAttention(E, H, **options), layer_class(E, H, **own, **options)
    assert not layer.load_state_dict(plain.state_dict(), strict=False).unexpected_keys
    x = torch.randn(2, 9, E, dtype=torch.float64)
    torch.testing.assert_close(layer(x), plain(x), atol=1e-12, rtol=0)
