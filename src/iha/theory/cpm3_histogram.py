"""What Theorem 4 does not say: CPM-3 needs one head, because its answer is a function of x_i and a histogram (E23).

The sum runs over *all* ordered pairs, so the count at i is Σ_a c_a · c_(−x_i − G·a), where c_a is how many tokens are
≡ a (mod M): permuting the sequence permutes the answers and nothing else. One head of uniform attention over one-hot
values (zero at padded positions) gives c/N_max at every position, in MHA and IHA alike. An MLP multiplies two
integers u, w ≤ N exactly with 2uw = (u + w)² − u² − w² and s² = ReLU(s) + 2·Σ_{t≥1} ReLU(s − t).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from iha.theory.claims import Claim, holds, largest_error, refuted, worst
from iha.theory.cpm3 import Task, brute_force, parameters, random_tokens
from iha.theory.layer import Layer


@dataclass(frozen=True)
class HistogramNetwork:
    """One head of multi-head attention and one ReLU MLP. The input is the one-hot residue of the token."""

    n_max: int
    embedding: Tensor  # (largest + 1, M): one-hot of x mod M
    attention: Layer  # one head: queries and keys zero (uniform attention), values N_max times the input
    w_1: Tensor  # (2M, hidden): reads the one-hot of x_i and the counts
    b_1: Tensor  # (hidden,)
    w_2: Tensor  # (hidden,)

    def count(self) -> int:
        return sum(t.numel() for t in (self.embedding, *self.attention.parameters(), self.w_1, self.b_1, self.w_2))

    def __call__(self, x: Tensor) -> Tensor:
        """(B, N) integers, N <= N_max -> (B, N) counts."""
        N = x.shape[1]
        embedded = torch.nn.functional.pad(self.embedding[x], (0, 0, 0, self.n_max - N))  # (B, N_max, M)
        counts = self.attention(embedded)  # (B, N_max, M)
        return (torch.relu(torch.cat((embedded, counts), -1) @ self.w_1 + self.b_1) @ self.w_2)[:, :N]


def build(n_max: int, task: Task) -> HistogramNetwork:
    M = task.M
    embedding = torch.eye(M, dtype=torch.float64)[torch.arange(task.largest + 1) % M]
    zero = torch.zeros(1, M, 1, dtype=torch.float64)
    layer = Layer(zero, zero.clone(), n_max * torch.eye(M, dtype=torch.float64)[None])
    columns, biases, outs = [], [], []
    gate = 4 * n_max  # switches a unit off unless x_i has the residue it is for
    for r in range(M):
        for a in range(M):
            u, w = a, (-r - task.G * a) % M
            for members, sign in (((u, w), 1), ((u,), -1), ((w,), -1)):  # 2uw = (u + w)² − u² − w²
                for t in range(n_max * len(members)):  # s² = ReLU(s) + 2 Σ_{t>=1} ReLU(s − t)
                    column = torch.zeros(2 * M, dtype=torch.float64)
                    column[r] = gate
                    for c in members:
                        column[M + c] += 1
                    columns.append(column)
                    biases.append(float(-gate - t))
                    outs.append(sign * (0.5 if t == 0 else 1.0))
    w_1 = torch.stack(columns, dim=1)
    b_1, w_2 = (torch.tensor(t, dtype=torch.float64) for t in (biases, outs))
    return HistogramNetwork(n_max, embedding, layer, w_1, b_1, w_2)


def equivariance_error(task: Task, n: int, seed: int) -> int:
    """Counts of a shuffled sequence against shuffled counts."""
    x = random_tokens(n, task, seed)[0]
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return int((brute_force(x[order], task) - brute_force(x, task)[order]).abs().max())


def check(seed: int = 0) -> Iterator[Claim]:
    task, n_max = Task(5, 12, largest=16), 16
    yield refuted(
        "cpm3", "the count depends on the order of the sequence (the paper: φ does)", "section 4.3",
        "shuffling the tokens only shuffles the counts", erratum="E23",
        condition=all(equivariance_error(Task(M, G, 16), 16, seed) == 0 for M, G in ((5, 12), (7, 16), (10, 23))),
    )  # fmt: skip
    network = build(n_max, task)
    errors = []
    for n in range(1, n_max + 1):
        x = random_tokens(n, task, seed + n)
        errors.append(largest_error(network(x)[0], brute_force(x[0], task).double()))
    yield refuted(
        "cpm3", "MHA needs N_max heads (the paper: “best currently known”)", "Theorem 4",
        "one head of uniform attention and an MLP count exactly, "
        f"M = 5, every N ≤ {n_max}: error {worst(errors):.0e}; with {network.count():,} parameters it is larger than "
        f"Theorem 4's IHA, {parameters('iha', n_max):,}",
        condition=worst(errors) < 1e-6 and network.count() > parameters("iha", n_max), erratum="E23",
    )  # fmt: skip
    attention = network.attention.count()
    yield holds(
        "cpm3", "one head is enough, with M² + 2M attention parameters", "(ours; not in the paper)",
        "queries and keys are zero", formula=task.M**2 + 2 * task.M, allocated=attention, erratum="E23",
    )  # fmt: skip
