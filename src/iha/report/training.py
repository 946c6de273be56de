"""The loss curve of a training run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def loss_curve(records: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Training loss, and the held-out loss of every source, over steps, as an SVG or PNG by the suffix of `path`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    names = sorted({name for record in records for name in record if name.startswith("validation/")})
    for name in ("loss", *names):
        points = [(record["step"], record[name]) for record in records if record.get(name) is not None]
        if points:
            steps, losses = zip(*points, strict=True)
            shown = "training" if name == "loss" else f"held out: {name.removeprefix('validation/')}"
            axes.plot(steps, losses, marker=None if name == "loss" else "o", linewidth=1.2, label=shown)
    axes.set(title=title, xlabel="step", ylabel="loss, nats per token")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)
