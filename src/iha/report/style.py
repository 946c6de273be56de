"""What all matplotlib pictures share. matplotlib is imported only when a picture is made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MHA_COLOUR, IHA_COLOUR, GREY = "#222222", "#b4552d", "#2f6690", "#8a8a8a"


def figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(fig: Figure, out: Path, name: str) -> list[Path]:
    """As PNG to look at and as SVG for papers; the same bytes for the same numbers."""
    import matplotlib

    paths = [out / f"{name}.{suffix}" for suffix in ("png", "svg")]
    with matplotlib.rc_context({"svg.hashsalt": name}):
        for path in paths:
            fig.savefig(path, dpi=160, facecolor="white", metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def heat(ax: Axes, matrix: Any, *, vmax: float | None = None) -> None:
    ax.imshow(matrix, cmap="Blues", vmin=0, vmax=vmax, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_color("#cccccc")


def tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.tick_params(labelsize=8)
