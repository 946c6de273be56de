"""The benches in tables and one picture, from their records."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iha.records import Column, Record, Table

_NUMBER = {"align": "right", "wrap": False}


def warnings(record: Record) -> list[str]:
    """Reasons why the ratios of a bench record are unreliable; empty when there are none."""
    return list(record.results["quiet"]["warnings"])


def attention_tables(record: Record) -> list[Table]:
    """Tables of an "attention-bench" record."""
    results = record.results
    tables = [_comparisons(record), _memory(results["memory"])]
    tables[0].notes += _conditions(record)
    if results["growth"]:
        tables.append(_growth(results["growth"]))
    if results.get("decoding"):  # records from before it was measured have none
        tables.append(decoding_table(results["decoding"]))
    if results["mechanisms"]:
        tables.append(_mechanisms(results["mechanisms"]))
    return tables


def model_table(record: Record) -> Table:
    """The table of a "model-bench" record."""
    columns: list[str | Column] = [
        "what",
        "model",
        "variant",
        *_numbers("IHA tokens/s", "Llama tokens/s", "ratio", "three runs", "cache"),
    ]
    table = Table("Speed and cache relative to Llama: only attention differs", columns)
    for row in record.results["rows"]:
        compiled = " compiled" if row.get("iha_compiled_static_cache") or row.get("compiled") else ""
        speed = (f"{row['tokens_per_second'][side]:.1f}" for side in ("iha", "llama"))
        cache = f"{row['cache_ratio']:.3f}" if "cache_ratio" in row else None
        names = (row["what"] + compiled, row["preset"], row["variant"])
        table.add([*names, *speed, f"{row['ratio']:.2f}", _runs(row), cache])
        if "to_eager" in row:
            eager = row["to_eager"]
            table.note(
                f"{row['preset']}: IHA compiled trains {eager['ratio']:.2f} ({_runs(eager)}) times as fast as eager"
            )
    table.notes += _conditions(record)
    return table


def _conditions(record: Record) -> list[str]:
    """How it was measured, where the record says so, and what speaks against it."""
    kept = record.results.get("memory_kept")
    memory = [] if kept is None else [f"freed memory {'stayed with' if kept else 'left'} the process, on both sides"]
    return [*memory, *(f"warning: {warning}" for warning in warnings(record))]


def _comparisons(record: Record) -> Table:
    sizes = record.config
    shape = f"N = {sizes['tokens']}, H = {sizes['heads']}, D = {sizes['head_dim']}"
    title = f"Time as a ratio: {shape}, best of {sizes['repeats']} rounds"
    return comparison_table(title, record.results["comparisons"])


def comparison_table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    numbers = _numbers("ms", "ms against", "ratio", "three runs")
    table = Table(title, ["what", "against", *_numbers("P", "W"), "direction", *numbers])
    for row in rows:
        times = (f"{1e3 * row[key]:.0f}" for key in ("seconds", "seconds_against"))
        names = (row["what"], row["against"], row["num_pseudo_heads"], row["window"], row["direction"])
        table.add([*names, *times, f"{row['ratio']:.2f}", _runs(row)])
    table.note("ratio: of the best rounds; three runs: the ratios of three separate thirds of the rounds")
    return table


def _memory(rows: Sequence[dict[str, Any]]) -> Table:
    numbers = _numbers("peak", "largest piece", "mixed q, k, v", "peak / mixed")
    table = Table("Memory of local IHA beyond its inputs", [*_numbers("P", "W"), "direction", *numbers])
    for row in rows:
        sizes = (f"{row[key] / 2**20:.1f} MiB" for key in ("peak_bytes", "largest_bytes", "mixed_bytes"))
        names = (row["num_pseudo_heads"], row["window"], row["direction"])
        table.add([*names, *sizes, f"{row['peak_over_mixed']:.2f}"])
    return table


def _growth(rows: Sequence[dict[str, Any]]) -> Table:
    numbers = _numbers("ms", "µs per token", "ms, SDPA")
    title = f"Time against N at a window of {rows[0]['window']} tokens"
    table = Table(title, [*_numbers("N", "P"), "direction", *numbers])
    for row in rows:
        sdpa = None if row["seconds_sdpa"] is None else f"{1e3 * row['seconds_sdpa']:.0f}"
        per_token = f"{1e6 * row['seconds'] / row['num_tokens']:.1f}"
        names = (row["num_tokens"], row["num_pseudo_heads"], row["direction"])
        table.add([*names, f"{1e3 * row['seconds']:.0f}", per_token, sdpa])
    return table


def decoding_table(rows: Sequence[dict[str, Any]]) -> Table:
    title = f"Decoding behind {rows[0]['num_cached']} cached tokens, relative to global multi-head attention"
    table = Table(title, _numbers("P", "W", "µs per token", "multi-head", "ratio", "three runs"))
    for row in rows:
        times = (f"{1e6 * row[key]:.0f}" for key in ("seconds_per_token", "seconds_per_token_multihead"))
        names = (row["num_pseudo_heads"], row["window"])
        table.add([*names, *times, f"{row['ratio']:.2f}", _runs(row)])
    return table


def _mechanisms(rows: Sequence[dict[str, Any]]) -> Table:
    numbers = _numbers("ms", "ratio", "three runs", "peak memory")
    title = f"Layers of every mechanism at N = {rows[0]['num_tokens']}, relative to global multi-head attention"
    table = Table(title, ["mechanism", *_numbers("P", "W"), "compared at", "direction", *numbers])
    for row in rows:
        names = (row["mechanism"], row["num_pseudo_heads"], row["window"], row["comparison"], row["direction"])
        values = (f"{1e3 * row['seconds']:.1f}", f"{row['ratio']:.2f}", _runs(row))
        table.add([*names, *values, f"{row['peak_bytes'] / 2**20:.1f} MiB"])
    return table


def draw_growth(record: Record, path: Path) -> None:
    """Time against N, both axes logarithmic: slope 1 is linear, slope 2 quadratic."""
    from matplotlib.figure import Figure

    rows = record.results["growth"]
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, direction in zip(axes, ("forward", "forward + backward"), strict=True):
        here = [row for row in rows if row["direction"] == direction]
        for P in sorted({row["num_pseudo_heads"] for row in here}):
            mine = [row for row in here if row["num_pseudo_heads"] == P]
            label = f"local IHA, P = {P}, W = {mine[0]['window']}"
            axis.plot([row["num_tokens"] for row in mine], [row["seconds"] for row in mine], "o-", label=label)
        best: dict[int, float] = {}
        for row in here:
            if row["seconds_sdpa"] is not None:
                N = row["num_tokens"]
                best[N] = min(row["seconds_sdpa"], best.get(N, float("inf")))
        axis.plot(list(best), list(best.values()), "s--", color="0.4", label="SDPA, causal")
        axis.set(xscale="log", yscale="log", xlabel="tokens N", title=direction)
        ticks = sorted({row["num_tokens"] for row in here})
        axis.set_xticks(ticks, [f"{N // 1024}k" if N >= 1024 else str(N) for N in ticks], minor=False)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds")
    axes[0].legend(frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _numbers(*titles: str) -> list[Column]:
    return [Column(title, **_NUMBER) for title in titles]  # type: ignore[arg-type]


def _runs(row: dict[str, Any]) -> str:
    return " ".join(f"{ratio:.2f}" for ratio in row["ratios"])
