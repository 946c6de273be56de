"""Stages run in their own processes; failures stay alone, and nothing is done twice."""

import subprocess
import sys
import time

import pytest

from iha.records import locked
from iha.reproduce.run import run_stages
from iha.reproduce.stage import Stage

FLOPS = Stage("flops", "FLOPs", ("flops", "--tokens", "64", "--out", "OUT/flops"), 0.1)
REFUSED = Stage("refused", "Refused", ("flops", "--tokens", "-1", "--out", "OUT/refused"), 0.1)
AFTER = Stage("after", "After", ("flops", "--tokens", "64", "--out", "OUT/after"), 0.1, needs=("refused",))


@pytest.fixture
def here(tmp_path):
    def placed(stage):
        arguments = tuple(word.replace("OUT", str(tmp_path)) for word in stage.arguments)
        return Stage(stage.name, stage.title, arguments, stage.minutes, stage.needs)

    return tmp_path, placed


def test_a_failed_stage_does_not_lose_the_others(here):
    out, placed = here
    outcomes = run_stages([placed(s) for s in (REFUSED, AFTER, FLOPS)], out, command="iha reproduce")
    assert [outcome.state for outcome in outcomes] == ["failed", "skipped", "done"]
    assert "-1" in outcomes[0].detail
    assert outcomes[1].detail == "it needs refused"
    assert (out / "flops" / "flops.json").exists()


def test_a_second_call_does_only_what_is_missing(here):
    out, placed = here
    run_stages([placed(FLOPS)], out, command="iha reproduce")
    written = (out / "flops" / "flops.json").stat().st_mtime_ns
    (outcome,) = run_stages([placed(FLOPS)], out, command="iha reproduce")
    assert outcome.state == "done before"
    assert outcome.cpu_seconds > 0.1  # importing torch alone takes more
    assert (out / "flops" / "flops.json").stat().st_mtime_ns == written


def test_another_command_is_run_again(here):
    out, placed = here
    run_stages([placed(FLOPS)], out, command="iha reproduce")
    other = Stage("flops", "FLOPs", ("flops", "--tokens", "128", "--out", str(out / "flops")), 0.1)
    (outcome,) = run_stages([other], out, command="iha reproduce")
    assert outcome.state == "done"


def test_sigterm_ends_the_running_stage_too(here):
    out, _ = here
    code = (
        "import sys; from pathlib import Path; from iha.reproduce.run import run_stages; "
        "from iha.reproduce.stage import Stage; out = Path(sys.argv[1]); "
        "run_stages([Stage('synth', 'Long', ('synth', 'binary', '--scale', 'small', '--workers', '1', '--out', "
        "str(out / 'synth')), 1)], out, command='iha')"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(out)])
    log = out / "logs" / "synth.log"
    deadline = time.monotonic() + 120
    while not (out / "synth" / "sweep.json").exists():  # the stage is at work
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    process.terminate()
    assert process.wait(timeout=60) == 143
    with locked(out / "synth"):  # nobody holds it any longer
        pass
