"""The loss curve of a training run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iha.records import Column, Table


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


def trainer_table(results: dict[str, Any]) -> Table:
    """What `iha bench trainer` found."""
    table = Table("The trainer beside a bare loop over the same model", ["what", Column("measured", "right")])
    speed = results["speed"]
    for side, value in speed["tokens_per_second"].items():
        table.add([f"{side}, tokens/s", f"{value:,.0f}"])
    table.add(["trainer / bare loop, all steps", f"{speed['ratio']:.3f}"])
    table.add(["trainer / bare loop, median step", f"{speed['ratio_of_medians']:.3f}"])
    for row in results["loader"]:
        grown = row["grown_bytes"] / 2**20
        table.add([f"loader: memory grown over a corpus of {row['corpus_megabytes']} MB, MiB", f"{grown:.1f}"])
        table.add([f"loader: tokens/s from {row['corpus_megabytes']} MB", f"{row['tokens_per_second']:,.0f}"])
    if "first_step" in results:
        table.add(["seconds to the first step, nothing prepared", f"{results['first_step']['seconds']:.1f}"])
    return table
