"""What the constructions look like: the numbers behind the pictures of `iha verify`, read off the operator.

Nothing is drawn here. `iha.report.theory` makes pictures of these numbers.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from iha.ops import reference
from iha.records import Progress, silent
from iha.theory import cpm3, polynomial_filters
from iha.theory.cpm3_claims import PRINTED_WORKSPACE, example_workspace
from iha.theory.layer import Layer, Mixing, identity_mixing, select_pseudo_head
from iha.theory.patterns import attention_maps
from iha.theory.strictness import Construction, repeated, run, signed_mixing, with_mixing
from iha.theory.superset import random_layer

Picture = dict[str, Any]  # plain numbers and lists, ready for a record


def layer_maps(layer: Layer, x: Tensor, score: str) -> Tensor:
    """(H, P, P, N, N): the attention maps of a constructed layer."""
    q, k, _ = layer.project(x)
    mixing = layer.mixing or identity_mixing(layer.heads, 1)
    return attention_maps(
        q, k, mixing.alpha_q, mixing.alpha_k, operator=reference.interleaved_head_attention,
        causal=None, scale=1.0, score=score,
    )  # fmt: skip


def polynomial_powers(nodes: int = 16, k: int = 9) -> Picture:
    """Theorem 3: head h, pseudo-key j attends with A^((h-1)H + (j-1))."""
    A = polynomial_filters.random_graph(nodes, seed=4)
    H = polynomial_filters.ceil_sqrt(k)
    x = polynomial_filters.augment(polynomial_filters.random_features(nodes, 1, seed=0, batch=1))
    maps = layer_maps(polynomial_filters.iha_layer(A, 1, k), x, "linear")[:, 0]  # (H, P, N, N), first pseudo-query
    powers = torch.stack(polynomial_filters.powers(A, H * H)).unflatten(0, (H, H))
    errors = (maps - powers).abs().amax((2, 3))
    return {"nodes": nodes, "k": k, "maps": maps.tolist(), "errors": errors.tolist()}


def cpm3_workspace(n: int = 9) -> Picture:
    """Theorem 4: tokens, the workspace that attention builds, the counts that the MLP reads off; and the example."""
    task = cpm3.Task(M=7, G=16, largest=9)
    x = torch.tensor([[9, 2, 3, 9, 5, 8, 6, 1, 4]])[:, :n]
    network = cpm3.build("iha", n, task)
    return {
        "M": task.M, "G": task.G, "heads": network.attention.heads, "parameters": network.count(),
        "tokens": x[0].tolist(), "workspace": network.workspace(x.double())[0].tolist(),
        "counted": network(x)[0].tolist(), "truth": cpm3.brute_force(x[0], task).tolist(),
        "example": {
            "printed": PRINTED_WORKSPACE.tolist(), "with_printed_shift": example_workspace(printed=True).tolist(),
            "with_its_inverse": example_workspace(printed=False).tolist(),
        },
    }  # fmt: skip


def shift_layer(P: int) -> Layer:
    """One head holds all P² cyclic shifts of P² tokens: pseudo-query p shifts by p·P, pseudo-key r by r more.

    The construction of Theorem 4 with every pseudo-query in use: there each head reads its first one only.
    """
    N = P * P
    shift = cpm3.cyclic(N)
    w_q = torch.stack([torch.linalg.matrix_power(shift, p * P) for p in range(P)])
    w_k = torch.stack([torch.linalg.matrix_power(shift, r).T for r in range(P)])
    alpha = torch.eye(P, dtype=torch.float64)[:, None, :].repeat(1, P, 1)  # pseudo-head j is head j, in every head
    return Layer(w_q, w_k, w_k, Mixing(alpha, alpha.clone(), alpha.clone(), select_pseudo_head(P, P)))


def attention_patterns(P: int = 4) -> Picture:
    """P² different maps in one head of IHA, beside the one map of a head of MHA with the same weights."""
    layer = shift_layer(P)
    x = torch.eye(P * P, dtype=torch.float64)[None]  # positions alone
    maps = layer_maps(layer, x, "hard")[0]  # (P, P, N, N)
    single = layer_maps(Layer(layer.w_q, layer.w_k, layer.w_v), x, "hard")[0, 0, 0]
    return {"pseudo_heads": P, "maps": maps.tolist(), "single": single.tolist()}


def strictness_curves() -> Picture:
    """Along a ray of repeated tokens t·x: MHA and the appendix's layer are lines, the corrected one is v·tanh."""
    base = random_layer(1, 6, 4, seed=2)
    base = Layer(base.w_q, base.w_q, base.w_v)  # ⟨q,k⟩ = |q|² > 0: the bend is where one looks for it
    direction = torch.randn(1, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    direction /= (direction @ base.w_q[0]).square().sum().sqrt()
    t = torch.linspace(-3, 3, 121, dtype=torch.float64)
    x = repeated(t[:, None] * direction, 3)

    def iha(construction: Construction) -> Tensor:
        layer = with_mixing(base, signed_mixing(1, 2, construction))
        return run(layer, x, causal=None, operator=reference.interleaved_head_attention)[:, 0, 0, 0]

    mha = Layer(base.w_q, base.w_k, base.w_v)(x, scale=None)[:, 0, 0]
    curves = {"mha": mha, "printed": iha("printed"), "corrected": iha("corrected")}
    return {"t": t.tolist()} | {name: values.tolist() for name, values in curves.items()}


def parameter_counts() -> Picture:
    """Both theorems' parameter counts against size."""
    N, d, orders, sizes = 64, 4, range(1, 65), range(1, 257)
    filters = {
        "N": N, "d": d, "k": list(orders), "mha": [polynomial_filters.mha_parameters(N, d, k) for k in orders],
        "iha": [polynomial_filters.iha_parameters(N, d, k) for k in orders],
    }  # fmt: skip
    counts = {
        "n": list(sizes), "mha_attention": [cpm3.mha_attention_parameters(n) for n in sizes],
        "iha_attention": [cpm3.iha_attention_parameters(n) for n in sizes],
        "mha": [cpm3.parameters("mha", n) for n in sizes], "iha": [cpm3.parameters("iha", n) for n in sizes],
    }  # fmt: skip
    return {"filters": filters, "cpm3": counts}


PICTURES: dict[str, Callable[[], Picture]] = {
    "polynomial-powers": polynomial_powers,
    "cpm3-workspace": cpm3_workspace,
    "attention-patterns": attention_patterns,
    "strictness": strictness_curves,
    "parameters": parameter_counts,
}
OF_CHECK = {
    "polynomial": ("polynomial-powers", "parameters"),
    "cpm3": ("cpm3-workspace", "parameters"),
    "patterns": ("attention-patterns",),
    "strictness": ("strictness",),
}


def gallery(checks: tuple[str, ...], progress: Progress = silent) -> dict[str, Picture]:
    """The numbers of the pictures that belong to these checks, by name."""
    names = list(dict.fromkeys(name for check in checks for name in OF_CHECK.get(check, ())))
    pictures = {}
    with progress.task("pictures", total=len(names)) as task:
        for name in names:
            pictures[name] = PICTURES[name]()
            task.advance(1, note=name)
    return pictures
