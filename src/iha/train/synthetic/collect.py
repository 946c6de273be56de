"""The sweeps of a directory as one small JSON file each, and their figures: what is kept under results/.

    python -m iha.train.synthetic.collect RUNS RESULTS FIGURES

Unfinished runs are kept as far as they got, marked as such.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iha.train.synthetic import checkpoint
from iha.train.synthetic.plots import plot_sweep
from iha.train.synthetic.statistics import summarise
from iha.train.synthetic.sweep import MANIFEST, read_records

_DIGITS = 6


def collect(sweep: Path) -> dict[str, Any] | None:
    """One sweep; None when no run has finished an epoch."""
    records = read_records(sweep)
    if not records:
        return None
    manifest = checkpoint.read_json(sweep / MANIFEST)
    return {
        "experiment": sweep.name, "command": manifest["command"].split(" --out ")[0], "machine": records[0]["machine"],
        "runs_planned": len(manifest["runs"]), "runs_finished": sum(record["finished"] for record in records),
        "summary": _rounded(summarise(records)),
        "runs": [_rounded({k: v for k, v in record.items() if k not in ("machine", "progress")}) for record in records],
    }  # fmt: skip


def together(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of several sweeps, each once: a configuration that two sweeps share is counted in the first."""
    runs = {run["name"]: run for result in reversed(results) for run in result["runs"]}
    return list(runs.values())


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def main(runs: Path, results: Path, figures: Path) -> None:
    results.mkdir(parents=True, exist_ok=True)
    for sweep in sorted(path.parent for path in runs.glob(f"*/{MANIFEST}")):
        content = collect(sweep)
        if content is None:
            continue
        checkpoint.write_json(results / f"{sweep.name}.json", content)
        (figures / sweep.name).mkdir(parents=True, exist_ok=True)
        plot_sweep(content["runs"], figures / sweep.name)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*map(Path, sys.argv[1:]))
