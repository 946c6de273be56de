"""Theorem 4: Count Permutation Match-3 in one layer (section 4.3, appendix B.3).

For every position i of x_1 … x_N count the pairs (j1, j2) ∈ [N]² with x_i + G·x_j1 + x_j2 ≡ 0 (mod M). Attention brings
all values to every position, by cyclic shifts: coordinate t of the workspace of position i is the value t places on. A
two-layer MLP then forms all N² sums and counts the multiples of M. MHA needs one head per shift; IHA factors the
shift t = (h-1)H + (j-1) into a query and a key, H = ⌈√N_max⌉.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from iha.records.host import require_bytes
from iha.synthetic.tasks.cpm3 import count_matches
from iha.theory.layer import Layer, router_mixing
from iha.theory.polynomial_filters import augment, ceil_sqrt, positional


@dataclass(frozen=True)
class Task:
    """M, G and the largest value a token may have (the paper: the vocabulary is O(N_max))."""

    M: int
    G: int
    largest: int

    def __post_init__(self) -> None:
        if self.M < 1 or self.G < 1 or self.largest < 0:
            raise ValueError(f"need M >= 1, G >= 1 and largest >= 0, got {self}")

    @property
    def ceiling(self) -> int:
        """The largest sum x_i + G·x_j1 + x_j2 of real tokens."""
        return (self.G + 2) * self.largest

    @property
    def padding(self) -> int:
        """The value of a padded position: one is enough to lift every sum it enters above the ceiling."""
        return self.ceiling + 1


def brute_force(x: Tensor, task: Task) -> Tensor:
    """The ground truth, by looking at all N³ triples in integers: (N,) -> (N,)."""
    return count_matches(x[None], task.M, task.G)[0]


def random_tokens(n: int, task: Task, seed: int) -> Tensor:
    """One random sequence, (1, n)."""
    return torch.randint(0, task.largest + 1, (1, n), generator=torch.Generator().manual_seed(seed))


def cyclic(n: int, *, printed: bool = False) -> Tensor:
    """P with (P x)_i = x_(i+1); the matrix printed in the example shifts the other way, (P x)_i = x_(i-1) (E4)."""
    return torch.eye(n, dtype=torch.float64).roll(1 if printed else -1, 0)


def mha_attention(n_max: int, *, printed: bool = False) -> Layer:
    """N_max heads, head h makes the shift P^(h-1)."""
    shift = cyclic(n_max, printed=printed)
    w_q = torch.stack([positional(torch.linalg.matrix_power(shift, h), 1) for h in range(n_max)])
    w_k = positional(torch.eye(n_max, dtype=torch.float64), 1).repeat(n_max, 1, 1)
    w_v = torch.eye(n_max + 1, 1, dtype=torch.float64).repeat(n_max, 1, 1)  # e_1
    return Layer(w_q, w_k, w_v)


def iha_attention(n_max: int, *, printed: bool = False) -> Layer:
    """⌈√N_max⌉ heads, as many pseudo-heads. Each query ties with H keys, hence the factor H in the values (E8)."""
    H, shift = ceil_sqrt(n_max), cyclic(n_max, printed=printed)
    w_q = torch.stack([positional(torch.linalg.matrix_power(shift, h * H), 1) for h in range(H)])
    w_k = torch.stack([positional(torch.linalg.matrix_power(shift, j).T, 1) for j in range(H)])
    w_v = torch.zeros(H, n_max + 1, H, dtype=torch.float64)
    w_v[torch.arange(H), 0, torch.arange(H)] = H
    return Layer(w_q, w_k, w_v, router_mixing(H))


def is_multiple(total: Tensor, task: Task) -> Tensor:
    """The activation: 1 at the multiples of M up to the ceiling, 0 at every other integer.

    The paper's ReLU(1 − (u mod M)) is 0 just below a multiple, so one rounding error loses a hit (E21); the distance to
    the *nearest* multiple agrees with it on the integers and tolerates it. The ceiling excludes padded positions (E5).
    """
    distance = (total - task.M * (total / task.M).round()).abs()
    return torch.relu(1 - distance - torch.relu(total - task.ceiling))


def is_multiple_printed(total: Tensor, task: Task) -> Tensor:
    """ReLU(1 − (u mod M)), word for word."""
    return torch.relu(1 - total.remainder(task.M))


@dataclass(frozen=True)
class Network:
    """One attention layer and one MLP, as weights."""

    attention: Layer
    w_1: Tensor  # (workspace width, pairs)
    w_2: Tensor  # (pairs, 1)
    task: Task

    @property
    def n_max(self) -> int:
        return self.attention.w_q.shape[-1]

    def count(self) -> int:
        return self.attention.count() + self.w_1.numel() + self.w_2.numel()

    def workspace(self, values: Tensor, *, fast: bool = False) -> Tensor:
        """(B, N_max) -> (B, N_max, workspace width). The fast path has softmax only: at scale 1000 every weight but
        those of the ties underflows to zero in float64, which is temperature zero."""
        x = augment(values[..., None])
        return self.attention.fast(x, scale=1000.0) if fast else self.attention(x, score="hard")

    def __call__(self, x: Tensor, *, fast: bool = False) -> Tensor:
        """Counts for (B, N) integers, N <= N_max: (B, N) float64, integers up to rounding."""
        N = x.shape[1]
        if not 1 <= N <= self.n_max:
            raise ValueError(f"the network takes 1 to {self.n_max} tokens, got {N}")
        if int(x.min()) < 0 or int(x.max()) > self.task.largest:
            raise ValueError(f"tokens must be in 0..{self.task.largest}, got {int(x.min())}..{int(x.max())}")
        values = torch.nn.functional.pad(x.double(), (0, self.n_max - N), value=float(self.task.padding))
        totals = self.workspace(values, fast=fast) @ self.w_1  # (B, N_max, pairs)
        return (is_multiple(totals, self.task) @ self.w_2)[:, :N, 0]


def pair_weights(n_max: int, width: int, G: int) -> Tensor:
    """(workspace width, N_max²): column (t1, t2) adds coordinate 0 (x_i itself), G times t1, and t2.

    Only the first N_max of the H² coordinates are read: the others repeat them (E5).
    """
    weights = torch.zeros(width, n_max, n_max, dtype=torch.float64)
    t = torch.arange(n_max)
    weights[0] += 1
    weights[t, t, :] += G
    weights[t, :, t] += 1
    return weights.flatten(1)


def build(kind: str, n_max: int, task: Task) -> Network:
    """The whole network, "mha" or "iha". Refuses what does not fit in memory before it allocates anything."""
    if kind not in ("mha", "iha"):
        raise ValueError(f"kind must be 'mha' or 'iha', got {kind!r}")
    if n_max < 1:
        raise ValueError(f"N_max must be at least 1, got {n_max}")
    require_bytes(bytes_needed(n_max), f"CPM-3 with N_max = {n_max}")
    attention = mha_attention(n_max) if kind == "mha" else iha_attention(n_max)
    width = attention.heads * attention.w_v.shape[-1]
    return Network(attention, pair_weights(n_max, width, task.G), torch.ones(n_max**2, 1, dtype=torch.float64), task)


def mha_attention_parameters(n: int) -> int:
    """2N²(N+1) + N(N+1). The paper charges N³ for the values, which are N vectors of N + 1 (E20)."""
    return 2 * n * n * (n + 1) + n * (n + 1)


def iha_attention_parameters(n: int) -> int:
    H = ceil_sqrt(n)
    return 2 * H * (n + 1) * n + (n + 1) * H**2 + 4 * H**3


def mlp_parameters(kind: str, n: int) -> int:
    """N² pairs, not N(N−1) (E5), read from N coordinates (MHA) or H² (IHA), and N² weights that add them up."""
    width = n if kind == "mha" else ceil_sqrt(n) ** 2
    return width * n * n + n * n


def parameters(kind: str, n: int) -> int:
    return (mha_attention_parameters if kind == "mha" else iha_attention_parameters)(n) + mlp_parameters(kind, n)


def bytes_needed(n: int, batch: int = 1) -> int:
    """Float64 weights and largest temporaries of both networks, run one after the other on `batch` sequences."""
    H = ceil_sqrt(n)
    weights = parameters("mha", n) + parameters("iha", n) + n**3  # and the powers of P on the way
    scores = max(H * (n * H) ** 2, n**3)  # (H, N·P, N·P)
    hidden = n * n * n  # (N, N²)
    return 8 * (weights + batch * (4 * scores + 4 * hidden))
