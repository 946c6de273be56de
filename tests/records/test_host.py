"""Facts about the machine, against the system's own."""

import os
import subprocess
from pathlib import Path

import pytest

from iha.records import host


def test_versions_are_those_of_the_running_interpreter():
    import platform

    import torch

    versions = host.describe_versions()
    assert versions["python"] == platform.python_version()
    assert torch.__version__.startswith(versions["torch"].split("+")[0])


def test_the_commit_is_gits():
    source = Path(host.__file__).resolve().parents[3]
    if not (source / ".git").exists():
        pytest.skip("not run from a git checkout")
    head = subprocess.run(["git", "-C", str(source), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert (host.commit() or "").removesuffix("+changes") == head.stdout.strip()


def test_memory_is_bounded_by_what_exists():
    assert 0 < host.available_bytes() <= host.physical_bytes()
    assert host.physical_bytes() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_peak_memory_grows_with_an_allocation():
    before = host.peak_bytes()
    block = bytearray(os.urandom(1)) * (before + 2**26)
    assert host.peak_bytes() >= len(block)


def test_what_does_not_fit_is_refused_with_its_size():
    host.require_bytes(1, "a byte")
    with pytest.raises(ValueError, match=r"everything needs about [\d,]+ bytes"):
        host.require_bytes(2 * host.physical_bytes(), "everything")
