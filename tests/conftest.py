"""Set up before torch is imported: oneDNN below AMX (see the Makefile), products as torch has them."""

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# A process keeps the products it has chosen: a command that a test calls must not change what the next test measures.
os.environ.setdefault("IHA_PRODUCTS", "torch")

import hypothesis
import pytest
import torch

# The same examples in every run, so that a change is judged by itself. HYPOTHESIS_PROFILE=explore draws new ones, and
# `make fuzz` (HYPOTHESIS_PROFILE=fuzz) draws new ones for as many minutes as it is told; see tests/fuzzing.py.
_QUIET = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]
# Said explicitly: where CI is set, hypothesis derandomises by default.
hypothesis.settings.register_profile("repeat", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("explore", deadline=None, derandomize=False, max_examples=500, print_blob=True)
hypothesis.settings.register_profile(
    "fuzz", deadline=None, derandomize=False, print_blob=True, suppress_health_check=_QUIET
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


@pytest.fixture(autouse=True)
def _reproducible() -> None:
    torch.manual_seed(42)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Workers share the cores, and tensors here are too small to be worth splitting."""
    torch.set_num_threads(int(os.environ.get("IHA_TEST_THREADS", "1")))


@pytest.fixture
def poisoned_memory():
    """torch.empty gives NaN instead of whatever was there, so that memory read before it is written shows."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before)
