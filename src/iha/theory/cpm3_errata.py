"""What goes wrong in Theorem 4 when it is built word for word (appendix B.3; errata E5, E8, E14, E21)."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from iha.ops import reference
from iha.theory.claims import Claim, holds, largest_error, refuted
from iha.theory.cpm3 import (
    Network,
    Task,
    brute_force,
    build,
    is_multiple,
    is_multiple_printed,
    pair_weights,
    random_tokens,
)
from iha.theory.polynomial_filters import augment

WHERE = "appendix B.3"
TASK = Task(5, 12, largest=9)


def mlp_error(w_1: Tensor, network: Network, x: Tensor) -> float:
    """Counts with another first layer, no padding, against brute force."""
    hits = is_multiple(network.workspace(x.double()) @ w_1, network.task)
    return largest_error(hits.sum(-1)[0], brute_force(x[0], network.task).double())


def distinct_pairs_error(seed: int) -> float:
    """The MLP sized for N(N−1) pairs: pairs with j1 = j2 are never counted."""
    n = 9
    network = build("iha", n, TASK)
    off_diagonal = ~torch.eye(n, dtype=torch.bool).flatten()
    return mlp_error(network.w_1[:, off_diagonal], network, random_tokens(n, TASK, seed))


def all_coordinates_error(seed: int) -> float:
    """N_max = 5, H² = 9: an MLP that pairs up all H² coordinates counts four positions twice."""
    n = 5
    network = build("iha", n, TASK)
    width = network.w_1.shape[0]
    return mlp_error(pair_weights(width, width, TASK.G), network, random_tokens(n, TASK, seed))


def short_sequence_workspace(padding: str, seed: int) -> tuple[Tensor, Tensor]:
    """N = 6 of N_max = 9, the padded keys hidden ("masked") or not: the workspace, and the shifts it should hold.

    With hidden keys fewer than H keys tie, and the factor H in the values no longer undoes the average.
    """
    n_max, n = 9, 6
    layer = build("iha", n_max, TASK).attention
    values = torch.nn.functional.pad(random_tokens(n, TASK, seed).double(), (0, n_max - n))
    real = torch.arange(n_max)[None] < n
    assert layer.mixing is not None
    workspace = reference.interleaved_head_attention(
        *layer.project(augment(values[..., None])), *layer.mixing.tensors(),
        causal=None, key_padding_mask=real if padding == "masked" else None, scale=1.0, score="hard",
    ).flatten(2)  # fmt: skip
    shifts = torch.stack([values.roll(-t, 1) for t in range(n_max)], dim=-1)
    return workspace[0, :n], shifts[0, :n]


def zero_padding_error(seed: int) -> float:
    """N = 6 of N_max = 9 with zeros: the pairs with padded positions are counted as well."""
    n_max, n = 9, 6
    network = build("iha", n_max, TASK)
    x = random_tokens(n, TASK, seed)
    hits = is_multiple(network.workspace(torch.nn.functional.pad(x.double(), (0, n_max - n))) @ network.w_1, TASK)
    return largest_error(hits.sum(-1)[0, :n], brute_force(x[0], TASK).double())


def one_of_the_ties_error(seed: int) -> float:
    """Temperature zero as the arg max of one key: H − 1 of the H shifts of each head are lost (E8)."""
    n = 9
    network = build("iha", n, TASK)
    values = random_tokens(n, TASK, seed).double() + 1  # no zeros, which a lost shift would also give
    layer = network.attention
    assert layer.mixing is not None
    q, k, v = layer.project(augment(values[..., None]))
    ramp = torch.linspace(1e-6, 0, n * layer.heads, dtype=torch.float64).reshape(
        n, layer.heads
    )  # earlier keys win ties
    # A bias on the keys breaks the ties: one more feature, at 1 in every query.
    q = torch.cat((q, torch.ones_like(q[..., :1])), dim=-1)
    k = torch.cat((k, ramp[None, :, :, None]), dim=-1)
    out = reference.interleaved_head_attention(q, k, v, *layer.mixing.tensors(), causal=None, scale=1.0, score="hard")
    return largest_error(out.flatten(2), network.workspace(values))


def finite_temperature_error(activation: Callable[[Tensor, Task], Tensor], seed: int, scale: float = 30.0) -> float:
    """Error of the counts when softmax is merely very sharp: weights off by e^-30, about 1e-13 (E21)."""
    n, task = 16, Task(5, 12, largest=16)
    network = build("iha", n, task)
    x = random_tokens(n, task, seed)
    totals = network.attention.fast(augment(x.double()[..., None]), scale=scale) @ network.w_1
    return largest_error((activation(totals, task) @ network.w_2)[0, :, 0], brute_force(x[0], task).double())


def causal_error(seed: int) -> float:
    """The construction under a causal mask: a token's count depends on later tokens, which it then cannot see (E14)."""
    n = 9
    network = build("iha", n, TASK)
    x = random_tokens(n, TASK, seed)
    workspace = network.attention(augment(x.double()[..., None]), score="hard", causal="token")
    return largest_error(workspace, network.workspace(x.double()))


def check(seed: int) -> Iterator[Claim]:
    yield refuted(
        "cpm3", "N(N−1) pairs, the first of the two numbers offered", WHERE + ", MLP",
        "the task counts pairs with j1 = j2 too; N_max = 9",
        error=distinct_pairs_error(seed), at_least=1, erratum="E5",
    )  # fmt: skip
    yield refuted(
        "cpm3", "an MLP that pairs up all H² coordinates (which ones is not said)", WHERE + ", MLP",
        "N_max = 5, H² = 9: positions counted twice",
        error=all_coordinates_error(seed), at_least=1, erratum="E5",
    )  # fmt: skip
    workspace, shifts = short_sequence_workspace("masked", seed)
    yield refuted(
        "cpm3", "N < N_max by masking the padded keys (how is not said)", "section 4.3, N ≤ N_max",
        "N = 6, N_max = 9: the workspace is wrong",
        error=largest_error(workspace * (shifts > 0), shifts), at_least=1, erratum="E5",
    )  # fmt: skip
    yield refuted(
        "cpm3", "N < N_max by padding with zeros (how is not said)", "section 4.3, N ≤ N_max",
        "N = 6, N_max = 9: padded pairs are counted",
        error=zero_padding_error(seed), at_least=1, erratum="E5",
    )  # fmt: skip
    yield refuted(
        "cpm3", "“the unique routing” as one arg max", WHERE, "one of the H tied keys instead of their average",
        error=one_of_the_ties_error(seed), at_least=1, erratum="E8",
    )  # fmt: skip
    yield refuted(
        "cpm3", "ReLU(1 − (u mod M)) above temperature 0 (the paper: at 0)", WHERE + ", MLP",
        "softmax at scale 30, N_max = 16: hits are lost",
        error=finite_temperature_error(is_multiple_printed, seed), at_least=1, erratum="E21",
    )  # fmt: skip
    yield holds(
        "cpm3", "the distance to the nearest multiple, above temperature 0", WHERE + ", MLP",
        "the same softmax; the fast path",
        error=finite_temperature_error(is_multiple, seed), tolerance=1e-6, erratum="E21",
    )  # fmt: skip
    yield refuted(
        "cpm3", "CPM-3 under the causal mask of Definition 1", "Definition 1, section 4.3",
        "the workspace lacks the later tokens",
        error=causal_error(seed), at_least=1, erratum="E14",
    )  # fmt: skip
