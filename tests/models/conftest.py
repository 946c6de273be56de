"""Lets the tests here share `tiny.py`: under importlib mode a test's directory is not on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest

_MARKERS_OF_TRANSFORMERS = (
    "accelerate_tests", "all_flash_attn_test", "executorch_export_test", "flash_attn_2_test", "flash_attn_3_test",
    "flash_attn_4_test", "flash_attn_test", "generate", "is_agent_test", "is_expert_parallel_test", "is_fsdp_test",
    "is_pipeline_test", "is_staging_test", "is_tensor_parallel_test", "is_training_test", "onnx_export_test", "order",
    "timeout", "torch_compile_test", "torch_export_test",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS_OF_TRANSFORMERS:
        config.addinivalue_line("markers", f"{marker}: of transformers' own tests (test_hugging_face.py)")
