"""A little scale model, trained once for all tests: two mechanisms, two steps of each phase."""

from pathlib import Path
from typing import NamedTuple

import pytest

from iha.experiment.plan import Settings, plan
from iha.experiment.run import run_all

RECIPES = Path(__file__).parent.parent.parent / "recipes" / "scale-model"
LITTLE = (
    "data.tokenizer={kind: bytes}", "data.context=256", "data.batch=2", "data.validation=0.1",
    "data.sources=[{name: text, kind: generated, generator: hops, count: 60}]", "validation.sequences=2",
    "parallel.micro_batch=2", "logging.every=1", "validation.every=1",
)  # fmt: skip


class Little(NamedTuple):
    plan: list
    runs: Path
    records: Path
    made: list


@pytest.fixture(scope="session")
def little(tmp_path_factory):
    out = tmp_path_factory.mktemp("scale-model")
    settings = Settings("quick", ("global", "iha"), length=0.002, changes=LITTLE)
    runs = plan(settings, RECIPES, out / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("iha.experiment.run.PUZZLES", 2)
        made = run_all(runs, out / "runs", out / "records", command="iha experiment")
    return Little(runs, out / "runs", out / "records", made)
