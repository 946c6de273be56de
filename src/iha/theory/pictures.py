"""The pictures of `iha verify`: what the constructions look like, drawn from what the operator returns.

PNG to look at, SVG for papers. matplotlib is imported here only, and only when a picture is made.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from iha.ops import reference
from iha.theory import cpm3, polynomial_filters
from iha.theory.layer import Layer
from iha.theory.patterns import attention_maps, random_maps
from iha.theory.strictness import Construction, repeated, run, signed_mixing, with_mixing
from iha.theory.superset import random_layer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MHA_COLOUR, IHA_COLOUR, GREY = "#222222", "#b4552d", "#2f6690", "#8a8a8a"


def figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(fig: Figure, out: Path, name: str) -> list[Path]:
    paths = [out / f"{name}.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        fig.savefig(path, dpi=160, facecolor="white", metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def heat(ax: Axes, matrix: Tensor, *, vmax: float | None = None, cmap: str = "Blues") -> Any:
    image = ax.imshow(matrix.numpy(), cmap=cmap, vmin=0, vmax=vmax, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_color("#cccccc")
    return image


def layer_maps(layer: Layer, x: Tensor, score: str) -> Tensor:
    """(H, P, P, N, N): the attention maps of a constructed layer."""
    q, k, _ = layer.project(x)
    assert layer.mixing is not None
    return attention_maps(
        q, k, layer.mixing.alpha_q, layer.mixing.alpha_k, operator=reference.interleaved_head_attention,
        causal=None, scale=1.0, score=score,
    )  # fmt: skip


def polynomial_powers(out: Path, nodes: int = 16, k: int = 9) -> list[Path]:
    """Theorem 3: head h, pseudo-key j attends with A^((h-1)H + (j-1))."""
    A = polynomial_filters.random_graph(nodes, seed=4)
    H = polynomial_filters.ceil_sqrt(k)
    x = polynomial_filters.augment(polynomial_filters.random_features(nodes, 1, seed=0, batch=1))
    maps = layer_maps(polynomial_filters.iha_layer(A, 1, k), x, "linear")[:, 0]  # (H, P, N, N), first pseudo-query
    fig = figure(1.9 * H + 0.9, 1.9 * H + 1.1)
    axes = fig.subplots(H, H, squeeze=False)
    for h in range(H):
        for j in range(H):
            ax, matrix = axes[h][j], maps[h, j]
            heat(ax, matrix.clamp_min(0).log1p())  # powers grow: the logarithm keeps all of them visible
            t = h * H + j
            error = (matrix - polynomial_filters.powers(A, t + 1)[t]).abs().max().item()
            ax.set_title(f"$A^{{{t}}}$" + (f"   error {error:.0e}" if error else "   exact"), fontsize=9, color=INK)
            if j == 0:
                ax.set_ylabel(f"head {h + 1}\nquery $A^{{{h * H}}}$", fontsize=9)
            if h == H - 1:
                ax.set_xlabel(f"key $(A^{{{j}}})^\\top$", fontsize=9)
    fig.suptitle(
        f"{H} heads of IHA hold {H * H} powers of one graph\nattention maps of the operator, $\\log(1+\\cdot)$",
        fontsize=11,
    )
    return save(fig, out, "polynomial-powers")


def number_grid(ax: Axes, matrix: Tensor, title: str, *, reference_matrix: Tensor | None = None) -> None:
    """A small matrix as coloured cells with their numbers; cells that differ from the reference are marked."""
    heat(ax, matrix, vmax=float(matrix.max()) * 1.6, cmap="Blues")
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            wrong = reference_matrix is not None and bool(matrix[i, j] != reference_matrix[i, j])
            ax.text(
                j, i, f"{matrix[i, j]:g}", ha="center", va="center", fontsize=9,
                color="#c1121f" if wrong else INK, fontweight="bold" if wrong else "normal",
            )  # fmt: skip
    ax.set_title(title, fontsize=9)


def cpm3_workspace(out: Path, n: int = 9) -> list[Path]:
    """Theorem 4: tokens, the workspace that attention builds, the counts that the MLP reads off; and the example."""
    task = cpm3.Task(M=7, G=16, largest=9)
    x = torch.tensor([[9, 2, 3, 9, 5, 8, 6, 1, 4]])[:, :n]
    network = cpm3.build("iha", n, task)
    workspace, counted = network.workspace(x.double())[0], network(x)[0].round()
    truth = cpm3.brute_force(x[0], task).double()
    H = network.attention.heads
    fig = figure(8.4, 7.4)
    parts: Any = fig.subfigures(2, 1, height_ratios=(1.65, 1))
    top, bottom = parts
    axes = top.subplots(1, 4, width_ratios=(1, 9, 1, 1))
    number_grid(axes[0], x[0, :, None].double(), "tokens")
    number_grid(axes[1], workspace, f"workspace of every position: {H} heads × {H} pseudo-keys = {H * H} cyclic shifts")
    for h in range(1, H):
        axes[1].axvline(h * H - 0.5, color=INK, linewidth=1.2)
    axes[1].set_xticks([h * H + (H - 1) / 2 for h in range(H)], [f"head {h + 1}" for h in range(H)], fontsize=9)
    axes[1].tick_params(length=0)
    number_grid(axes[2], counted[:, None], "counted")
    number_grid(axes[3], truth[:, None], "brute\nforce")
    error = (network(x)[0] - truth).abs().max().item()
    top.suptitle(
        f"CPM-3 with M = {task.M}, G = {task.G}: {network.count():,} parameters, "
        + (f"largest error {error:.0e}" if error else "counts exact"), fontsize=11,
    )  # fmt: skip
    from iha.theory.cpm3_claims import PRINTED_WORKSPACE, example_workspace

    axes = bottom.subplots(1, 3)
    number_grid(axes[0], PRINTED_WORKSPACE, "printed in the example, $N_{max} = 4$")
    number_grid(
        axes[1],
        example_workspace(printed=True),
        "what the printed $P$ gives (it shifts down)",
        reference_matrix=PRINTED_WORKSPACE,
    )
    number_grid(
        axes[2],
        example_workspace(printed=False),
        "with $P^\\top$ in its place (E4)",
        reference_matrix=PRINTED_WORKSPACE,
    )
    return save(fig, out, "cpm3-workspace")


def attention_patterns(out: Path, P: int = 4, N: int = 12) -> list[Path]:
    """P² maps of one head with random weights, and the one map of an MHA head, all on one colour scale."""
    maps = random_maps(4, P, N=N, seed=3)[0]  # (P, P, N, N)
    single = random_maps(4, 1, N=N, seed=3)[0, 0, 0]
    fig = figure(9.2, 5.9)
    parts: Any = fig.subfigures(1, 2, width_ratios=(1, 2.6))
    left, right = parts
    ax = left.subplots()
    heat(ax, single.sqrt(), vmax=1.0)
    ax.set_anchor("N")
    ax.set_xlabel("key token", fontsize=9)
    ax.set_ylabel("query token", fontsize=9)
    left.suptitle("MHA: one pattern a head\n", fontsize=11)
    axes = right.subplots(P, P)
    for p in range(P):
        for r in range(P):
            heat(axes[p][r], maps[p, r].sqrt(), vmax=1.0)
            if r == 0:
                axes[p][r].set_ylabel(f"query {p + 1}", fontsize=9)
            if p == P - 1:
                axes[p][r].set_xlabel(f"key {r + 1}", fontsize=9)
    right.suptitle(
        f"IHA, P = {P}: {P * P} patterns a head\n(a row of four shares one softmax; colour: √weight)", fontsize=11
    )
    return save(fig, out, "attention-patterns")


def strictness_curves(out: Path) -> list[Path]:
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

    curves: dict[str, tuple[Tensor, str, str, float]] = {
        "MHA (Definition 1)": (Layer(base.w_q, base.w_k, base.w_v)(x, scale=None)[:, 0, 0], MHA_COLOUR, "-", 3.0),
        "IHA as printed: V, V": (iha("printed"), INK, "--", 1.4),
        "IHA corrected: V, −V": (iha("corrected"), IHA_COLOUR, "-", 2.0),
    }
    fig = figure(5.6, 3.9)
    ax = fig.subplots()
    for label, (values, colour, style, width) in curves.items():
        ax.plot(t.numpy(), values.numpy(), style, color=colour, linewidth=width, label=label)
    ax.set_xlabel("t, input is the token t·x repeated three times", fontsize=9)
    ax.set_ylabel("first output coordinate", fontsize=9)
    tidy(ax)
    ax.legend(frameon=False, fontsize=8)
    ax.set_title("Strictness: only the corrected layer leaves the line (E1)", fontsize=10)
    return save(fig, out, "strictness")


def parameter_counts(out: Path) -> list[Path]:
    """Both theorems' parameter counts, and where IHA starts to be the cheaper one."""
    fig = figure(9.6, 3.9)
    left, right = fig.subplots(1, 2)
    orders, N, d = range(1, 65), 64, 4
    left.plot(
        orders, [polynomial_filters.mha_parameters(N, d, k) for k in orders], color=MHA_COLOUR, label="MHA, k heads"
    )
    left.plot(
        orders, [polynomial_filters.iha_parameters(N, d, k) for k in orders], color=IHA_COLOUR, label="IHA, ⌈√k⌉ heads"
    )
    left.set_xlabel("k (powers)", fontsize=9)
    left.set_title(f"Filter banks, N = {N}, d = {d}", fontsize=10)
    sizes = range(1, 257)
    right.loglog(sizes, [cpm3.mha_attention_parameters(n) for n in sizes], color=MHA_COLOUR, label="MHA, attention")
    right.loglog(sizes, [cpm3.iha_attention_parameters(n) for n in sizes], color=IHA_COLOUR, label="IHA, attention")
    right.loglog(sizes, [cpm3.parameters("mha", n) for n in sizes], "--", color=MHA_COLOUR, label="MHA, with MLP")
    right.loglog(sizes, [cpm3.parameters("iha", n) for n in sizes], "--", color=IHA_COLOUR, label="IHA, with MLP")
    right.set_xlabel("$N_{max}$", fontsize=9)
    right.set_title("CPM-3: with the MLP both are Θ(N³) (E22)", fontsize=10)
    for ax in (left, right):
        ax.set_ylabel("parameters", fontsize=9)
        ax.legend(frameon=False, fontsize=8)
        tidy(ax)
    return save(fig, out, "parameters")


def tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.tick_params(labelsize=8)


PICTURES: dict[str, tuple[Callable[[Path], list[Path]], ...]] = {
    "polynomial": (polynomial_powers, parameter_counts),
    "cpm3": (cpm3_workspace, parameter_counts),
    "patterns": (attention_patterns,),
    "strictness": (strictness_curves,),
}


def draw(out: Path, names: tuple[str, ...], bar: Callable[[str, int, int], None]) -> list[Path]:
    """The pictures of these checks, as PNG and SVG."""
    out.mkdir(parents=True, exist_ok=True)
    makers = list(dict.fromkeys(maker for name in names for maker in PICTURES.get(name, ())))
    paths = []
    for done, maker in enumerate(makers):
        bar(f"drawing {maker.__name__.replace('_', ' ')}", done, len(makers))
        paths += maker(out)
    return paths
