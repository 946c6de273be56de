"""Interleaved head attention in a model of your own: a drop-in for a causal self-attention block."""

import torch
from torch import Tensor, nn

import iha


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        # P = 2 pseudo-heads per head, a window of 16 tokens, RoPE inside the layer.
        self.attention = iha.InterleavedHeadAttention(width, heads, 2, window=16, rope_theta=10_000.0)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:  # (B, N, E)
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary: int, width: int = 64, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.unembed = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:  # (B, N) to (B, N, vocabulary)
        return self.unembed(self.blocks(self.embed(tokens)))


def main() -> None:
    torch.manual_seed(0)
    text = "the quick brown fox jumps over the lazy dog. " * 40
    letters = sorted(set(text))
    data = torch.tensor([letters.index(letter) for letter in text])
    model = LanguageModel(len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(61):
        starts = torch.randint(len(data) - 65, (8,)).tolist()
        batch = torch.stack([data[start : start + 65] for start in starts])
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:3d}  loss {loss.item():.3f}")
    assert loss.item() < 1.0, "the model has not learned the sentence"


if __name__ == "__main__":
    main()
