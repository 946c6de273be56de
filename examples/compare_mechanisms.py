"""One layer of each mechanism on one task: which of two marked tokens came first?

A toy, not a result: the experiments of the paper are `iha synth`.
"""

import torch
from torch import Tensor, nn

from iha.layers.mechanisms import MECHANISMS
from iha.layers.schedule import LayerSpec

WIDTH, HEADS, TOKENS = 32, 4, 24


class Classifier(nn.Module):
    def __init__(self, mechanism: str) -> None:
        super().__init__()
        pseudo_heads = 2 if MECHANISMS[mechanism].has_pseudo_heads else 1
        self.embed, self.positions = nn.Embedding(3, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.attention = LayerSpec(mechanism, None, pseudo_heads).build(WIDTH, HEADS)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens: Tensor) -> Tensor:  # (B, N) to (B, 2)
        return self.head(self.attention(self.embed(tokens) + self.positions.weight)[:, -1])


def batch(size: int) -> tuple[Tensor, Tensor]:
    tokens = torch.zeros(size, TOKENS, dtype=torch.long)
    first, second = torch.rand(size, TOKENS - 1).topk(2, dim=1).indices.unbind(1)
    rows = torch.arange(size)
    tokens[rows, first], tokens[rows, second] = 1, 2
    return tokens, (first < second).long()


def accuracy(mechanism: str, steps: int = 60) -> tuple[float, int]:
    torch.manual_seed(0)
    model = Classifier(mechanism)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        tokens, labels = batch(64)
        loss = nn.functional.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        tokens, labels = batch(512)
        right = (model(tokens).argmax(1) == labels).float().mean().item()
    return right, sum(p.numel() for p in model.attention.parameters())


def main() -> None:
    print(f"{'mechanism':>16}  accuracy  parameters")
    for name in MECHANISMS:
        right, parameters = accuracy(name)
        print(f"{name:>16}  {right:8.2f}  {parameters:10d}")


if __name__ == "__main__":
    main()
