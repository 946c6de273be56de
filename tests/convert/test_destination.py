"""Complete or absent, and what the killed have left behind."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import iha.convert
import tiny_checkpoint as tiny
from iha.convert.destination import complete_or_absent

HOLDS = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
from iha.convert.destination import complete_or_absent
with complete_or_absent(Path(sys.argv[1])) as directory:
    (directory / "model.safetensors").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def _writing(destination: Path) -> subprocess.Popen:
    """A process in the middle of writing."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(destination)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


def _partial(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(".partial"))


def test_the_next_run_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    process = _writing(tmp_path / "model")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(_partial(tmp_path)) == 1
    with complete_or_absent(tmp_path / "model") as directory:
        assert _partial(tmp_path) == [directory.name]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_a_live_one_writes_stays(tmp_path: Path) -> None:
    process = _writing(tmp_path / "model")
    try:
        with complete_or_absent(tmp_path / "model") as directory:
            assert len(_partial(tmp_path)) == 2
            (directory / "x").touch()
        (left,) = _partial(tmp_path)
        assert (tmp_path / left / "model.safetensors").read_text() == "half"
    finally:
        process.kill()
        process.wait()


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    process = _writing(tmp_path / "model")
    process.send_signal(signal.SIGINT)
    process.wait()
    assert list(tmp_path.iterdir()) == []


def test_other_peoples_directories_are_not_touched(tmp_path: Path) -> None:
    for name in (".other.12345678.partial", ".model.partial", "model.12345678.partial"):
        (tmp_path / name).mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".model.abcdefgh.partial").symlink_to(tmp_path / "elsewhere")
    with complete_or_absent(tmp_path / "model"):
        pass
    assert len(list(tmp_path.iterdir())) == 6


def test_links_and_files_are_no_destination(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    for name in ("link", "dangling", "file"):
        with pytest.raises(ValueError, match="the destination"), complete_or_absent(tmp_path / name):
            pytest.fail("writing was begun")
    with complete_or_absent(tmp_path / "empty") as directory:
        (directory / "x").touch()
    assert (tmp_path / "empty" / "x").exists()


def test_a_disk_too_small_is_found_first(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the disk has"), complete_or_absent(tmp_path / "model", 10**18):
        pytest.fail("writing was begun")
    assert list(tmp_path.iterdir()) == []


def _interruptible(source: Path, destination: Path) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    iha.convert.convert(source, destination)


def test_killed_at_any_moment_it_is_whole_or_absent(tmp_path: Path) -> None:
    """A conversion under SIGKILL and SIGINT at ever later moments; after the last one, everything is tidy."""
    source, destination = tiny.write_sharded(tmp_path / "source"), tmp_path / "iha"
    for _ in range(2):  # the first also imports
        shutil.rmtree(destination, ignore_errors=True)
        started = time.monotonic()
        iha.convert.convert(source, destination)
    takes = time.monotonic() - started
    whole = tiny.contents(destination)
    outcomes = set()
    for attempt in range(24):
        shutil.rmtree(destination, ignore_errors=True)
        child = multiprocessing.get_context("fork").Process(target=_interruptible, args=(source, destination))
        # Until it is itself, the child is a copy of the test runner: an interrupt there would end the runner.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        child.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        assert child.pid is not None
        time.sleep(takes * attempt / 12)
        os.kill(child.pid, signal.SIGKILL if attempt % 2 else signal.SIGINT)
        child.join()
        outcomes.add(destination.exists())
        assert not destination.exists() or tiny.contents(destination) == whole
    assert False in outcomes, "every child was done before it was killed"
    shutil.rmtree(destination, ignore_errors=True)
    iha.convert.convert(source, destination)
    assert tiny.contents(destination) == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iha", "source"]
