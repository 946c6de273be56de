"""The pictures of `iha verify`, from the gallery of its record: PNG to look at, SVG for papers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from iha.records import Record
from iha.report.style import IHA_COLOUR, INK, MHA_COLOUR, figure, heat, save, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Picture = dict[str, Any]


def draw(record: Record, out: Path) -> list[Path]:
    """All pictures of a "verify" record."""
    return [path for name, numbers in record.results["gallery"].items() for path in _DRAWN[name](numbers, out)]


def polynomial_powers(numbers: Picture, out: Path) -> list[Path]:
    """Theorem 3: head h, pseudo-key j attends with A^((h-1)H + (j-1))."""
    maps, errors = np.array(numbers["maps"]), numbers["errors"]  # (H, H, N, N)
    H = len(maps)
    fig = figure(1.9 * H + 0.9, 1.9 * H + 1.1)
    axes = fig.subplots(H, H, squeeze=False)
    for h in range(H):
        for j in range(H):
            ax, error = axes[h][j], errors[h][j]
            heat(ax, np.log1p(maps[h, j].clip(0)))  # powers grow: the logarithm keeps all of them visible
            exact = f"   error {error:.0e}" if error else "   exact"
            ax.set_title(f"$A^{{{h * H + j}}}$" + exact, fontsize=9, color=INK)
            if j == 0:
                ax.set_ylabel(f"head {h + 1}\nquery $A^{{{h * H}}}$", fontsize=9)
            if h == H - 1:
                ax.set_xlabel(f"key $(A^{{{j}}})^\\top$", fontsize=9)
    fig.suptitle(
        f"{H} heads of IHA hold {H * H} powers of one graph\nattention maps of the operator, $\\log(1+\\cdot)$",
        fontsize=11,
    )
    return save(fig, out, "polynomial-powers")


def cpm3_workspace(numbers: Picture, out: Path) -> list[Path]:
    """Theorem 4: tokens, the workspace that attention builds, the counts that the MLP reads off; and the example."""
    H, counted, truth = numbers["heads"], np.array(numbers["counted"]), np.array(numbers["truth"])
    fig = figure(8.4, 7.4)
    parts: Any = fig.subfigures(2, 1, height_ratios=(1.65, 1))
    top, bottom = parts
    axes = top.subplots(1, 4, width_ratios=(1, 9, 1, 1))
    shifts = f"workspace of every position: {H} heads × {H} pseudo-keys = {H * H} cyclic shifts"
    _number_grid(axes[0], np.array(numbers["tokens"])[:, None], "tokens")
    _number_grid(axes[1], np.array(numbers["workspace"]), shifts)
    for h in range(1, H):
        axes[1].axvline(h * H - 0.5, color=INK, linewidth=1.2)
    axes[1].set_xticks([h * H + (H - 1) / 2 for h in range(H)], [f"head {h + 1}" for h in range(H)], fontsize=9)
    axes[1].tick_params(length=0)
    _number_grid(axes[2], counted.round()[:, None], "counted")
    _number_grid(axes[3], truth[:, None], "brute\nforce")
    error = np.abs(counted - truth).max()
    verdict = f"largest error {error:.0e}" if error else "counts exact"
    title = f"CPM-3 with M = {numbers['M']}, G = {numbers['G']}: {numbers['parameters']:,} parameters, {verdict}"
    top.suptitle(title, fontsize=11)
    axes = bottom.subplots(1, 3)
    example = {name: np.array(matrix) for name, matrix in numbers["example"].items()}
    titles = {
        "printed": "printed in the example, $N_{max} = 4$",
        "with_printed_shift": "what the printed $P$ gives (it shifts down)",
        "with_its_inverse": "with $P^\\top$ in its place (E4)",
    }
    for ax, (name, text) in zip(axes, titles.items(), strict=True):
        _number_grid(ax, example[name], text, reference=example["printed"])
    return save(fig, out, "cpm3-workspace")


def attention_patterns(numbers: Picture, out: Path) -> list[Path]:
    """P² maps of one constructed head, and the one map of an MHA head, all on one colour scale."""
    P, maps = numbers["pseudo_heads"], np.array(numbers["maps"])
    fig = figure(9.2, 5.9)
    parts: Any = fig.subfigures(1, 2, width_ratios=(1, 2.6))
    left, right = parts
    ax = left.subplots()
    heat(ax, np.array(numbers["single"]), vmax=1.0)
    ax.set_anchor("N")
    ax.set_xlabel("key token", fontsize=9)
    ax.set_ylabel("query token", fontsize=9)
    left.suptitle("MHA: one pattern per head\n", fontsize=11)
    axes = right.subplots(P, P)
    for p in range(P):
        for r in range(P):
            heat(axes[p][r], maps[p, r] * P, vmax=1.0)
            axes[p][r].set_title(f"shift {p * P + r}", fontsize=8, color=INK)
            if r == 0:
                axes[p][r].set_ylabel(f"pseudo-query {p + 1}", fontsize=8)
            if p == P - 1:
                axes[p][r].set_xlabel(f"pseudo-key {r + 1}", fontsize=8)
    right.suptitle(
        f"IHA, P = {P}: {P * P} patterns in one head, here every cyclic shift of {P * P} tokens\n"
        f"(the {P} maps of a row share one softmax: each weight is 1/{P})", fontsize=11,
    )  # fmt: skip
    return save(fig, out, "attention-patterns")


def strictness(numbers: Picture, out: Path) -> list[Path]:
    """Along a ray of repeated tokens t·x: MHA and the appendix's layer are lines, the corrected one is v·tanh."""
    curves = {
        "mha": ("MHA (Definition 1)", MHA_COLOUR, "-", 3.0),
        "printed": ("IHA as printed: V, V", INK, "--", 1.4),
        "corrected": ("IHA corrected: V, −V", IHA_COLOUR, "-", 2.0),
    }
    fig = figure(5.6, 3.9)
    ax = fig.subplots()
    for name, (label, colour, style, width) in curves.items():
        ax.plot(numbers["t"], numbers[name], style, color=colour, linewidth=width, label=label)
    ax.set_xlabel("t, input is the token t·x repeated three times", fontsize=9)
    ax.set_ylabel("first output coordinate", fontsize=9)
    tidy(ax)
    ax.legend(frameon=False, fontsize=8)
    ax.set_title("Strictness: only the corrected layer leaves the line (E1)", fontsize=10)
    return save(fig, out, "strictness")


def parameters(numbers: Picture, out: Path) -> list[Path]:
    """Both theorems' parameter counts, and where IHA starts to be the cheaper one."""
    fig = figure(9.6, 3.9)
    left, right = fig.subplots(1, 2)
    filters, counts = numbers["filters"], numbers["cpm3"]
    left.plot(filters["k"], filters["mha"], color=MHA_COLOUR, label="MHA, k heads")
    left.plot(filters["k"], filters["iha"], color=IHA_COLOUR, label="IHA, ⌈√k⌉ heads")
    left.set_xlabel("k (powers)", fontsize=9)
    left.set_title(f"Filter banks, N = {filters['N']}, d = {filters['d']}", fontsize=10)
    for name, colour in (("mha", MHA_COLOUR), ("iha", IHA_COLOUR)):
        right.loglog(counts["n"], counts[f"{name}_attention"], color=colour, label=f"{name.upper()}, attention")
        right.loglog(counts["n"], counts[name], "--", color=colour, label=f"{name.upper()}, with MLP")
    right.set_xlabel("$N_{max}$", fontsize=9)
    right.set_title("CPM-3: with the MLP both are Θ(N³) (E22)", fontsize=10)
    for ax in (left, right):
        ax.set_ylabel("parameters", fontsize=9)
        ax.legend(frameon=False, fontsize=8)
        tidy(ax)
    return save(fig, out, "parameters")


def _number_grid(ax: Axes, matrix: np.ndarray, title: str, *, reference: np.ndarray | None = None) -> None:
    """A small matrix as coloured cells with their numbers; cells that differ from the reference are marked."""
    heat(ax, matrix, vmax=float(matrix.max()) * 1.6)
    for (i, j), value in np.ndenumerate(matrix):
        wrong = reference is not None and bool(value != reference[i, j])
        style = {"color": "#c1121f", "fontweight": "bold"} if wrong else {"color": INK}
        ax.text(j, i, f"{value:g}", ha="center", va="center", fontsize=9, **style)  # type: ignore[arg-type]
    ax.set_title(title, fontsize=9)


_DRAWN: dict[str, Callable[[Picture, Path], list[Path]]] = {
    "polynomial-powers": polynomial_powers,
    "cpm3-workspace": cpm3_workspace,
    "attention-patterns": attention_patterns,
    "strictness": strictness,
    "parameters": parameters,
}
