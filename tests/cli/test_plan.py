"""`iha plan`: what the room below computes, written and shown; the room itself is in tests/train/test_plan.py."""

from dataclasses import asdict

import pytest

from cli.calls import assert_refused, iha
from iha.records import read_record
from iha.train.plan import Footprint, MechanismPlan

PLAN = MechanismPlan("iha", 10**9, Footprint(2**30, 2**30, 2**30, 2**31), 10**15, 1.01, 2.5, 2**20, None)


def test_the_plan_is_written_and_shown(recipe, tmp_path, monkeypatch):
    asked = []

    def planned(settings, gpus, gpu, *, mfu, attentions, progress):
        asked.append((settings.parallel.micro_batch, gpus, gpu, mfu, attentions))
        return [PLAN]

    monkeypatch.setattr("iha.train.plan.plan", planned)
    words = ["parallel.micro_batch=2", "--gpus", 2, "--gpu", "h100", "--mfu", 0.3, "--mechanisms", "iha"]
    result = iha("plan", recipe, *words, "--out", tmp_path / "plan")
    assert result.exit_code == 0, result.output
    assert asked == [(2, 2, "h100", 0.3, ("iha",))]
    record = read_record(tmp_path / "plan" / "plan.json", "train-plan")
    assert record.results == [asdict(PLAN)]
    assert "| iha | 1.000 | 1.0 | 1.0 | 1.0 | 2.0 | 5.0 | yes |" in (tmp_path / "plan" / "plan.md").read_text()
    assert "tiny on 2 × h100" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu", "abacus", "--gpus", "2"], "gpu must be one of a100"),
        (["--gpus", "3"], "data.batch is 4 sequences, which 3 processes cannot share evenly"),
        (["--gpus", "2", "--mechanisms", "lstm"], "attention must be one of"),
    ],
)
def test_mistakes_are_told_in_one_line(recipe, tmp_path, words, message):
    assert_refused(iha("plan", recipe, *words, "--out", tmp_path / "plan"), message)
    assert not (tmp_path / "plan").exists()
