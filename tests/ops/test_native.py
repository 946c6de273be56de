"""Compiling C++ files: once, kept, and never in the way of a forward."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from iha.ops import native

needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="no C++ compiler")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "answer.cpp"
    path.write_text('extern "C" int answer() { return D; }')
    return path


@needs_compiler
def test_a_file_is_compiled_once_for_each_constant(source: Path, tmp_path: Path) -> None:
    assert native.library(source, D=42).answer() == 42
    assert native.library(source, D=7).answer() == 7
    made = sorted((tmp_path / "cache" / "iha").iterdir())
    before = [path.stat().st_mtime_ns for path in made]
    native.library.cache_clear()
    assert native.library(source, D=42).answer() == 42
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "cache" / "iha").iterdir())] == before
    assert len(made) == 2


@needs_compiler
def test_what_does_not_compile_is_a_warning_and_none(source: Path) -> None:
    source.write_text("no C++")
    with pytest.raises(ValueError, match="failed"):
        native.library(source, D=16)
    with pytest.warns(UserWarning, match=r"torch's own kernels take the place of answer\.cpp"):
        assert native.kernels(source, 16) is None


def test_without_a_compiler(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ValueError, match=r"needs a C\+\+ compiler"):
        native.library(source, D=3)


def test_the_environment_switches_it_off() -> None:
    code = "from iha.ops import native; print(native.ENABLED)"
    for value, printed in (("0", "False"), ("1", "True")):
        env = {**os.environ, "IHA_NATIVE": value}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        assert done.stdout.strip() == printed, done.stderr


def test_switched_off_nothing_is_compiled(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "ENABLED", False)
    assert native.kernels(source.with_name("none.cpp"), 16) is None


def test_only_plain_tensors_are_read_directly() -> None:
    x = torch.zeros(2)
    assert not native.is_plain(x)  # autograd is on
    with torch.no_grad():
        assert native.is_plain(x, torch.nn.Parameter(x))
        assert not native.is_plain(x, x.double())
        assert not native.is_plain(torch.zeros(2, device="meta"))
        with FlopCounterMode(display=False):
            assert not native.is_plain(x)
        seen: list[bool] = []
        torch.func.vmap(lambda t: (seen.append(native.is_plain(t)), t)[1])(x)
        assert seen == [False]
