"""transformers' own model, generation and export tests, for six settings of attention, and for Llama as the control.

They are not in the installed package. Point IHA_TRANSFORMERS_TESTS to a directory that holds its `tests` package: the
repository at the installed version, or the source distribution's tests with what that leaves out
(causal_lm_tester.py, generation/, exporters/, utils/) from the repository. `benchmarks/hugging_face.py` counts.
"""

import os
import sys
from pathlib import Path

import pytest

HOME = os.environ.get("IHA_TRANSFORMERS_TESTS")
if not HOME or not (Path(HOME) / "tests" / "causal_lm_tester.py").is_file():
    pytest.skip(
        "IHA_TRANSFORMERS_TESTS names no directory with transformers' tests/causal_lm_tester.py",
        allow_module_level=True,
    )
sys.path.insert(0, HOME)
sys.modules.pop("tests", None)  # ours, which pytest has registered

import unittest  # noqa: E402

from tests import causal_lm_tester  # type: ignore[import-not-found]  # noqa: E402
from transformers import LlamaModel  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402

from iha.models import IHAConfig, IHAForCausalLM, IHAModel  # noqa: E402

SETTINGS = {
    # Windows longer than the tests' sequences, as those of Mistral: the tests expect caches of full length.
    "Hybrid": {"attention": "iha", "window": 64, "global_every": 2},
    "Everywhere": {"attention": "iha", "window": 0, "global_every": None},
    "Global": {"attention": "global"},
    "GlobalLocal": {"attention": "global_local", "window": 64, "global_every": 2},
    "TalkingHeads": {"attention": "talking_heads"},
    "Differential": {"attention": "differential"},
}

# By these names the tests know which class has a head, and which labels it takes.
modeling_auto.MODEL_MAPPING_NAMES["iha"] = "IHAModel"
modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["iha"] = "IHAForCausalLM"


def _tests_of(name: str, fields: dict) -> type:
    class Tester(causal_lm_tester.CausalLMModelTester):
        base_model_class, causal_lm_class, config_class = IHAModel, IHAForCausalLM, IHAConfig
        forced_config_args = ["pad_token_id", *fields]  # noqa: RUF012

        def get_config(self) -> IHAConfig:
            for field, value in fields.items():
                setattr(self, field, value)
            return super().get_config()

    class Tests(causal_lm_tester.CausalLMModelTest, unittest.TestCase):
        model_tester_class = Tester
        # Weights are between virtual tokens, N*P of them: the shapes that these expect are of N.
        has_attentions = not name.startswith(("Hybrid", "Everywhere"))

        # Refused by name, each with a test of ours: test_inputs.py, test_rotary.py.
        test_custom_4d_attention_mask = None
        test_model_rope_scaling_frequencies = None  # of "dynamic" among others
        test_model_rope_scaling_from_config_1_dynamic = None

    return type(f"Test{name}", (Tests,), {})


class LlamaTester(causal_lm_tester.CausalLMModelTester):
    base_model_class = LlamaModel


class TestLlama(causal_lm_tester.CausalLMModelTest, unittest.TestCase):
    """A failure here is not ours: it comes from tests and package of different versions, or from this machine."""

    model_tester_class = LlamaTester


for _name, _fields in SETTINGS.items():
    globals()[f"Test{_name}"] = _tests_of(_name, _fields)
