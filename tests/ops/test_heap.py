"""Freed memory stays with the process: no page is faulted in twice. In a process of its own, because it stays set."""

import subprocess
import sys

import pytest

from iha.ops import heap

FAULTS = """
import resource, sys, torch
from iha.ops.heap import keep_memory

kept = sys.argv[1] == "keep" and keep_memory()
torch.set_num_threads(1)
faults = []
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16 << 20)  # 64 MiB: 16384 pages of 4 KiB
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(kept, faults[-1])
"""


def faults(mode: str) -> tuple[str, int]:
    out = subprocess.run([sys.executable, "-c", FAULTS, mode], capture_output=True, text=True, check=True).stdout
    kept, count = out.split()
    return kept, int(count)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_a_tensor_is_not_paged_in_anew():
    assert faults("keep") == ("True", pytest.approx(0, abs=100))


def test_elsewhere_nothing_changes(monkeypatch):
    monkeypatch.setattr(heap.sys, "platform", "darwin")
    assert heap.keep_memory() is False
