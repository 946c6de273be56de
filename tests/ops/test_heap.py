"""Freed memory stays with the process: its pages are not faulted in twice. In processes of their own: it stays set."""

import subprocess
import sys

import pytest

from iha.ops import heap

FAULTS = """
import ctypes, resource, sys
from iha.ops.heap import keep_memory

kept = sys.argv[1] == "keep" and keep_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(64 << 20)
    libc.memset(block, 1, 64 << 20)
    libc.free(block)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> tuple[str, int]:
    out = subprocess.run([sys.executable, "-c", FAULTS, mode], capture_output=True, text=True, check=True).stdout
    kept, count = out.split()
    return kept, int(count)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_freed_memory_is_not_paged_in_anew():
    assert faults("keep") == ("True", pytest.approx(0, abs=100))
    assert faults("as it is")[1] > 1000  # 64 MiB are 16384 pages of 4 KiB


def test_elsewhere_nothing_changes(monkeypatch):
    monkeypatch.setattr(heap.sys, "platform", "darwin")
    assert heap.keep_memory() is False
