"""Set up before torch is imported: oneDNN below AMX (see the Makefile), and one thread a worker."""

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
import torch


@pytest.fixture(autouse=True)
def _reproducible() -> None:
    torch.manual_seed(42)


@pytest.fixture(scope="session", autouse=True)
def _one_thread_a_worker() -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
