"""Complete or absent, and what the killed have left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tiny_checkpoint as tiny
from iha.convert.destination import complete_or_absent

HOLDS = """
import sys, time
from pathlib import Path
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


@pytest.mark.slow
def test_killed_at_any_moment_it_is_whole_or_absent(tmp_path: Path) -> None:
    """`iha convert` under SIGKILL and SIGINT at ever later moments; after the last word everything is tidy."""
    source = tiny.write_sharded(tmp_path / "source")
    command = [
        sys.executable,
        "-m",
        "iha",
        "convert",
        str(source),
        str(tmp_path / "iha"),
        "--out",
        str(tmp_path / "out"),
    ]
    started = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    takes = time.monotonic() - started
    whole = tiny.contents(tmp_path / "iha")
    for attempt in range(8):
        for path in sorted((tmp_path / "iha").iterdir()) if (tmp_path / "iha").exists() else []:
            path.unlink()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(takes * (0.6 + 0.06 * attempt))
        process.send_signal(signal.SIGKILL if attempt % 2 else signal.SIGINT)
        process.wait()
        if (tmp_path / "iha").exists() and os.listdir(tmp_path / "iha"):
            assert tiny.contents(tmp_path / "iha") == whole
    for path in (tmp_path / "iha").iterdir() if (tmp_path / "iha").exists() else []:
        path.unlink()
    subprocess.run(command, check=True, capture_output=True)
    assert tiny.contents(tmp_path / "iha") == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iha", "out", "source"]
