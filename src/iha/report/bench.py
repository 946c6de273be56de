"""`iha bench attention`: measure, print, write JSON, draw."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from iha.accounting import attention_bench as bench
from iha.accounting.mechanism_bench import LayerCost, layer_costs
from iha.accounting.mechanisms import AttentionShape
from iha.records.host import describe_machine

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
_LONGEST_SDPA = 8192  # quadratic: at 32k one round takes longer than all the rest
_GROWTH_WINDOW = 128
_MECHANISM_TOKENS = 256  # two of the mechanisms are cubic


def run_attention(
    tokens: int,
    heads: int,
    head_dim: int,
    pseudo_heads: str,
    dtype: str,
    threads: int | None,
    repeats: int,
    quick: bool,
    out: Path,
) -> None:
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be one of {tuple(_DTYPES)}, got {dtype!r}")
    for name, value in {"tokens": tokens, "heads": heads, "head_dim": head_dim, "repeats": repeats}.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    counts = _pseudo_heads(pseudo_heads)
    for P in counts:
        bench.flop_matched_window(tokens, P)  # raises here and not after minutes of measuring
    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    sizes = bench.Sizes(tokens, heads, head_dim, _DTYPES[dtype], repeats)
    out.mkdir(parents=True, exist_ok=True)
    console = Console()

    comparisons: list[bench.Comparison] = []
    uses: list[bench.MemoryUse] = []
    points: list[bench.Growth] = []
    costs: list[LayerCost] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=4 * len(counts) + (0 if quick else len(counts)))
        for P in counts:
            # A global layer costs P² times as much, and what it adds to SDPA is the same for every P.
            few = replace(sizes, repeats=max(1, repeats // 3))  # a dense mask takes many seconds a round
            for what, at in (
                (bench.compare_local, sizes),
                (bench.compare_global, sizes),
                (bench.compare_dense_mask, few),
            ):
                if what is not bench.compare_global or min(counts) == P:
                    progress.update(task, description=f"{what.__name__.replace('_', ' ')}, P = {P}")
                    comparisons += what(at, P)
                progress.advance(task)
            progress.update(task, description=f"memory, P = {P}")
            uses += bench.memory(sizes, P)
            progress.advance(task)
            if not quick:
                progress.update(task, description=f"time against N, P = {P}")
                points += bench.growth(sizes, P, _GROWTH_WINDOW, _LENGTHS, _LONGEST_SDPA)
                progress.advance(task)
        if not quick:
            shape = AttentionShape(heads * head_dim, heads)

            def say(what: str) -> None:
                progress.update(task, description=what)

            costs += layer_costs(shape, _MECHANISM_TOKENS, counts[0], repeats, say)

    result = {
        "command": " ".join(["iha", *sys.argv[1:]]),
        "seed": 0,
        "machine": describe_machine(),
        "sizes": {"tokens": tokens, "heads": heads, "head_dim": head_dim, "dtype": dtype, "repeats": repeats},
        "comparisons": [c.as_json() for c in comparisons],
        "memory": [use.as_json() for use in uses],
        "growth": [asdict(point) for point in points],
        "mechanisms": {"tokens": _MECHANISM_TOKENS, "layers": [cost.as_json() for cost in costs]},
    }
    (out / "attention.json").write_text(json.dumps(result, indent=1) + "\n")
    console.print(_comparison_table(comparisons, sizes))
    console.print(_memory_table(uses))
    if points:
        console.print(_growth_table(points))
        draw_growth(points, out / "attention.svg")
    if costs:
        console.print(_mechanism_table(costs))
    console.print(f"written to {out}", style="dim")


def _pseudo_heads(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"pseudo-heads must be numbers separated by commas, got {text!r}") from None
    if min(counts) < 1:
        raise ValueError(f"pseudo-heads must be at least 1, got {text!r}")
    return counts


def _comparison_table(comparisons: Sequence[bench.Comparison], sizes: bench.Sizes) -> Table:
    title = (
        f"Time as a ratio: N = {sizes.num_tokens}, H = {sizes.num_heads}, D = {sizes.head_dim}, best of {sizes.repeats}"
    )
    table = Table(title=title)
    for column, align in (("what", "left"), ("against", "left"), ("P", "right"), ("W", "right"), ("direction", "left")):
        table.add_column(column, justify=align)  # type: ignore[arg-type]
    for column in ("ms", "ms against", "ratio"):
        table.add_column(column, justify="right")
    for c in comparisons:
        window = "–" if c.window is None else str(c.window)
        times = (f"{1e3 * c.seconds:.0f}", f"{1e3 * c.seconds_against:.0f}", f"[bold]{c.ratio:.2f}")
        table.add_row(c.what, c.against, str(c.num_pseudo_heads), window, c.direction, *times)
    return table


def _memory_table(uses: Sequence[bench.MemoryUse]) -> Table:
    table = Table(title="Memory of local IHA beyond its inputs")
    for column in ("P", "W", "direction", "peak", "largest piece", "mixed q, k, v", "peak / mixed"):
        table.add_column(column, justify="left" if column == "direction" else "right")
    for use in uses:
        sizes = (f"{size / 2**20:.1f} MiB" for size in (use.peak_bytes, use.largest_bytes, use.mixed_bytes))
        row = (str(use.num_pseudo_heads), str(use.window), use.direction, *sizes, f"[bold]{use.peak_over_mixed:.2f}")
        table.add_row(*row)
    return table


def _growth_table(points: Sequence[bench.Growth]) -> Table:
    table = Table(title=f"Time against N at a window of {points[0].window} tokens")
    for column in ("N", "P", "direction", "ms", "µs a token", "ms, SDPA"):
        table.add_column(column, justify="left" if column == "direction" else "right")
    for point in points:
        sdpa = "–" if point.seconds_sdpa is None else f"{1e3 * point.seconds_sdpa:.0f}"
        per_token = f"[bold]{1e6 * point.seconds / point.num_tokens:.1f}"
        row = (str(point.num_tokens), str(point.num_pseudo_heads), point.direction, f"{1e3 * point.seconds:.0f}")
        table.add_row(*row, per_token, sdpa)
    return table


def _mechanism_table(costs: Sequence[LayerCost]) -> Table:
    table = Table(title=f"Layers of every mechanism at N = {_MECHANISM_TOKENS}, beside global multi-head attention")
    for column in ("mechanism", "P", "W", "compared at", "direction", "ms", "ratio", "peak memory"):
        table.add_column(column, justify="right" if column in ("P", "W", "ms", "ratio", "peak memory") else "left")
    for cost in costs:
        window = "–" if cost.window is None else str(cost.window)
        numbers = (f"{1e3 * cost.seconds:.1f}", f"[bold]{cost.ratio:.2f}", f"{cost.peak_bytes / 2**20:.1f} MiB")
        row = (cost.mechanism, str(cost.num_pseudo_heads), window, cost.comparison, cost.direction)
        table.add_row(*row, *numbers)
    return table


def draw_growth(points: Sequence[bench.Growth], path: Path) -> None:
    """Time against N, both axes logarithmic: slope 1 is linear, slope 2 quadratic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
    for axis, direction in zip(axes, ("forward", "forward + backward"), strict=True):
        here = [p for p in points if p.direction == direction]
        for P in sorted({p.num_pseudo_heads for p in here}):
            mine = [p for p in here if p.num_pseudo_heads == P]
            label = f"local IHA, P = {P}, W = {mine[0].window}"
            axis.plot([p.num_tokens for p in mine], [p.seconds for p in mine], "o-", label=label)
        best: dict[int, float] = {}
        for p in here:
            if p.seconds_sdpa is not None:
                best[p.num_tokens] = min(p.seconds_sdpa, best.get(p.num_tokens, float("inf")))
        axis.plot(list(best), list(best.values()), "s--", color="0.4", label="SDPA, causal")
        axis.set(xscale="log", yscale="log", xlabel="tokens N", title=direction)
        axis.set_xticks([p.num_tokens for p in here], [f"{p.num_tokens // 1024}k" for p in here], minor=False)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds")
    axes[0].legend(frameon=False)
    figure.savefig(path)
    plt.close(figure)
