import os

import pytest

from iha.cli.low_precision import guard_low_precision

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


@pytest.fixture
def amx(tmp_path, monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags : fpu avx512f amx_bf16 amx_tile\n")
    return cpuinfo


def test_a_machine_that_traps_is_held_below_amx(amx, capfd):
    assert guard_low_precision("bfloat16", amx, probe=DIES)
    assert os.environ.pop("ONEDNN_MAX_CPU_ISA") == "AVX512_CORE_FP16"
    assert "traps on AMX" in capfd.readouterr().err


def test_a_machine_that_works_is_left_alone(amx):
    assert not guard_low_precision("bfloat16", amx, probe="pass")
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_nothing_is_tried_without_need(amx, monkeypatch, tmp_path):
    assert not guard_low_precision("float32", amx, probe=DIES)
    assert not guard_low_precision("bfloat16", tmp_path / "nowhere", probe=DIES)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "ALL")
    assert not guard_low_precision("bfloat16", amx, probe=DIES)
