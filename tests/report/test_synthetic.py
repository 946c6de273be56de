"""What is kept of a sweep, in the layout of today and in that of earlier versions, and figures that appear."""

from pathlib import Path
from typing import Any

import pytest

from iha.records import write_json
from iha.report.synthetic import keep_sweeps, summary_table, write_page
from iha.synthetic.config import RunConfig
from iha.synthetic.files import read_results
from iha.synthetic.statistics import summarise

CONFIG = RunConfig("binary", "multihead", (6,), num_pseudo_heads=1, init="")
RESULTS = Path(__file__).parents[2] / "results" / "synthetic"


def run(scores: list[float], seed: int = 0, **changes: Any) -> dict[str, Any]:
    history = [
        {"epoch": i + 1, "train": s, "validation": s, "test": s, "flops": 10, "cpu_seconds": 1, "seconds": 1}
        | {"validation_loss": 1 - s}
        for i, s in enumerate(scores)
    ]
    return {
        "config": CONFIG.as_json() | {"seed": seed} | changes, "finished": True, "history": history,
        "best": max(history, key=lambda entry: entry["validation"]), "parameters": 7, "mixing_parameters": 0,
        "flops_per_epoch": 10, "progress": {"epoch": len(scores), "step": 0, "steps": 4}, "machine": {"cores": 2},
    }  # fmt: skip


def old_sweep(directory: Path, runs: list[dict[str, Any]]) -> None:
    """As it was written before all results had one envelope, when multi-head attention was called mha."""
    (directory / "runs").mkdir(parents=True)
    new_fields = {"model", "norm", "weight_decay", "optimiser", "weights", "offsets"}
    for content in runs:
        content["config"] = {k: v for k, v in content["config"].items() if k not in new_fields} | {"mechanism": "mha"}
        name = RunConfig.from_json(content["config"]).name.replace("-multihead-", "-mha-")
        write_json(directory / "runs" / f"{name}.json", content)
    plan = {"command": "iha synth binary --out somewhere/private", "runs": [content["config"] for content in runs]}
    write_json(directory / "sweep.json", plan)


def test_what_is_kept_of_a_sweep(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    old_sweep(tmp_path / "sweeps" / "some", [run([0.123456789, 0.7]), run([0.5], seed=1) | {"finished": False}])
    written = keep_sweeps(tmp_path / "sweeps", tmp_path / "kept", tmp_path / "figures")
    assert {path.name for path in written} == {"some.json", "curves.png", "price.png", "bars.png", "README.md"}
    assert all(path.stat().st_size > 5000 for path in written if path.suffix == ".png")
    kept = read_results(tmp_path / "kept" / "some.json")
    assert (kept["command"], kept["runs_planned"], kept["runs_finished"]) == ("iha synth binary", 2, 1)
    assert kept["runs"][0]["history"][0]["test"] == 0.123457
    assert kept["runs"][0]["config"] == CONFIG.as_json()
    page = (tmp_path / "kept" / "README.md").read_text().splitlines()
    assert "`iha synth binary`: 1 of 2 runs finished. Model: ours." in page
    scores = "60.0 ± 14.1 (2) | – | – | 31.2 ± 26.6 (2) | 70.0 (1) | 70.0 (1) | 70.0 (1)"
    assert f"| MHA | 2 | 1–2, stopped | {scores} | 1.0 | 1.00e+01 |" in page


def test_a_summary_as_a_table() -> None:
    table = summary_table(summarise([run([0.5, 0.7], seed=seed) for seed in (0, 1)]))
    assert table.rows == [["MHA", "2", "70.0 ± 0.0", "70.0 ± 0.0", "70.0 ± 0.0", "70.0 ± 0.0", "7", "1.0", "1.00e+01"]]


def test_committed_results_are_readable_and_the_page_is_theirs(tmp_path: Path) -> None:
    files = sorted(RESULTS.glob("*.json"))
    assert len(files) >= 20
    for path in files:
        kept = read_results(path)
        assert kept["command"].startswith("iha synth ")
        assert kept["runs_finished"] == sum(run["finished"] for run in kept["runs"])
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert write_page(tmp_path).read_text() == (RESULTS / "README.md").read_text()


@pytest.mark.parametrize("content", ["{", "[]", '{"experiment": "x"}', '{"schema": 1}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(ValueError, match=r"bad\.json"):
        write_page(tmp_path)
    with pytest.raises(ValueError, match="no kept sweep"):
        write_page(tmp_path / "nowhere")
