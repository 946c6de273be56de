"""The models that `iha verify --train` trains: the layers of Theorems 1, 3 and 4 with every weight free."""

import torch
from torch import Tensor, nn

from iha.ops import reference
from iha.theory.polynomial_filters import augment


class Mixer(nn.Module):
    """The mixing tensors of an IHA layer; MHA has none. R is per head (Algorithm 1)."""

    def __init__(self, heads: int, pseudo_heads: int, generator: torch.Generator) -> None:
        super().__init__()
        shape = (heads, heads, pseudo_heads)
        self.alpha_q, self.alpha_k, self.alpha_v = (
            nn.Parameter(torch.randn(shape, generator=generator) / heads**0.5) for _ in range(3)
        )
        self.collapse = nn.Parameter(torch.randn(heads, pseudo_heads, generator=generator) / pseudo_heads**0.5)

    def forward(self) -> tuple[Tensor, ...]:
        return self.alpha_q, self.alpha_k, self.alpha_v, self.collapse


class Plain(nn.Module):
    """Replaces the mixer in MHA: the identity, without parameters."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("eye", torch.eye(heads)[:, :, None], persistent=False)

    def forward(self) -> tuple[Tensor, ...]:
        eye = self.get_buffer("eye")
        return eye, eye, eye, torch.ones(eye.shape[0], 1)


def mixer(kind: str, heads: int, generator: torch.Generator) -> nn.Module:
    return Mixer(heads, heads, generator) if kind == "IHA" else Plain(heads)


class FilterModel(nn.Module):
    """Linear attention on X̂, projected to the k blocks. IHA's values are H times wider, as in Theorem 3."""

    def __init__(self, kind: str, heads: int, N: int, d: int, k: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        E, width = N + d, d * heads if kind == "IHA" else d

        def normal(*shape: int, std: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator) * std)

        self.w_q, self.w_k = (normal(heads, E, N, std=0.5 / E**0.5) for _ in range(2))
        self.w_v = normal(heads, E, width, std=1 / E**0.5)
        self.w_o = normal(heads * width, k * d, std=1 / (heads * width) ** 0.5)
        self.mixer = mixer(kind, heads, generator)

    def forward(self, X: Tensor) -> Tensor:
        x = augment(X)
        q, k, v = (torch.einsum("bne,hed->bnhd", x, w) for w in (self.w_q, self.w_k, self.w_v))
        out = reference.interleaved_head_attention(q, k, v, *self.mixer(), causal=None, scale=1.0, score="linear")
        return out.flatten(2) @ self.w_o


class CountModel(nn.Module):
    """Embedding + position, one softmax attention layer, an MLP, one logit for each possible count."""

    def __init__(
        self, kind: str, heads: int, n: int, vocabulary: int, seed: int, width: int = 48, hidden: int = 128
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)  # nn.Linear and nn.Embedding draw from the global generator
        self.heads = heads
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(n, width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, n * n + 1))
        self.mixer = mixer(kind, heads, generator)

    def forward(self, x: Tensor) -> Tensor:
        h = self.token(x) + self.position.weight  # (B, N, width)
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).unbind(2)  # (B, N, H, D)
        attended = reference.interleaved_head_attention(q, k, v, *self.mixer(), causal=None)
        return self.mlp(h + self.out(attended.flatten(2)))
