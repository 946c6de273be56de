"""The sweeps of a directory as one small JSON file each, their figures and a page of tables: what is kept.

    python -m iha.train.synthetic.collect RUNS RESULTS FIGURES   # from the directories of the sweeps
    python -m iha.train.synthetic.collect RESULTS                # the page again, from the JSON files alone

Unfinished runs are kept as far as they got, marked as such.
"""

import sys
from pathlib import Path
from typing import Any

from iha.train.synthetic import checkpoint
from iha.train.synthetic.plots import plot_sweep
from iha.train.synthetic.statistics import summarise
from iha.train.synthetic.sweep import MANIFEST, read_records
from iha.train.synthetic.table import markdown_page

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
    write_page(results)


def write_page(results: Path) -> None:
    """All tables of a results directory, in its README.md."""
    kept = [checkpoint.read_json(path) for path in sorted(results.glob("*.json"))]
    (results / "README.md").write_text(markdown_page(kept), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write_page(Path(sys.argv[1]))
    elif len(sys.argv) == 4:
        main(*map(Path, sys.argv[1:]))
    else:
        raise SystemExit(__doc__)
