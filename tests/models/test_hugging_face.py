"""transformers' own model, generation and export tests, for six settings of attention, and for Llama as the control.

They are not in the installed package. Point IHA_TRANSFORMERS_TESTS to a directory that holds its `tests` package: the
repository at the installed version; or tests/ and utils/ of another version of the repository with the tests of the
installed version's source distribution (`pip download --no-deps --no-binary :all: transformers==...`) copied over them,
and the installed package as src/transformers. They import httpx. `benchmarks/hugging_face.py` counts.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from unittest import mock  # noqa: E402

from tests import (  # type: ignore[import-not-found]  # noqa: E402
    causal_lm_tester,
    test_fsdp_mixin,
    test_tensor_parallel_mixin,
)
from transformers import LlamaModel  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402

from iha.models import (  # noqa: E402
    IHAConfig,
    IHAForCausalLM,
    IHAForQuestionAnswering,
    IHAForSequenceClassification,
    IHAForTokenClassification,
    IHAModel,
)

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
for _task in ("CAUSAL_LM", "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "QUESTION_ANSWERING"):
    _names = getattr(modeling_auto, f"MODEL_FOR_{_task}_MAPPING_NAMES")
    _names["iha"] = _names["llama"].replace("Llama", "IHA")

# Those of several processes are for chosen models only, which do not have to be ours.
test_fsdp_mixin.FSDP_DISTRIBUTED_TEST_MODEL_TYPES = None
test_tensor_parallel_mixin.TP_DISTRIBUTED_TEST_MODEL_TYPES = None

# Refused on purpose; the docs say so (docs/models.md, "transformers' own tests"). Each is run all the same, and must
# meet the sentence that refuses it.
REFUSED = {
    "test_custom_4d_attention_mask": "4-D masks",
    "test_model_rope_scaling_frequencies": "do not depend on the length; got 'dynamic'",
    "test_model_rope_scaling_from_config_1_dynamic": "do not depend on the length; got 'dynamic'",
}
# With weights between virtual tokens, output_attentions is refused here. Without it they must pass.
ASSISTED = (
    "test_assisted_decoding_matches_greedy_search_0_random",
    "test_assisted_decoding_matches_greedy_search_1_same",
    "test_assisted_decoding_sample",
)


def _refused(name: str, sentence: str) -> Callable[[unittest.TestCase], None]:
    def test(self: unittest.TestCase) -> None:
        with pytest.raises(ValueError, match=sentence):
            getattr(causal_lm_tester.CausalLMModelTest, name)(self)

    return test


def _without_attentions(name: str) -> Callable[[unittest.TestCase], None]:
    def test(self: unittest.TestCase) -> None:
        with mock.patch.object(type(self), "has_attentions", False):
            getattr(causal_lm_tester.CausalLMModelTest, name)(self)

    return test


def _tests_of(name: str, fields: dict) -> type:
    class Tester(causal_lm_tester.CausalLMModelTester):
        base_model_class, causal_lm_class, config_class = IHAModel, IHAForCausalLM, IHAConfig
        sequence_classification_class = IHAForSequenceClassification
        token_classification_class = IHAForTokenClassification
        question_answering_class = IHAForQuestionAnswering
        forced_config_args = ["pad_token_id", *fields]  # noqa: RUF012

        def get_config(self) -> IHAConfig:
            for field, value in fields.items():
                setattr(self, field, value)
            return super().get_config()

    class Tests(causal_lm_tester.CausalLMModelTest, unittest.TestCase):
        model_tester_class = Tester

        # IHA's weights are between virtual tokens, N*P of them, where these two expect N.

        def test_attention_outputs(self) -> None:
            tester = self.model_tester
            num_virtual = tester.seq_length * tester.get_config().layer_schedule[0]["num_pseudo_heads"]
            with mock.patch.multiple(tester, create=True, encoder_seq_length=num_virtual, key_length=num_virtual):
                super().test_attention_outputs()

        def _check_attentions_for_generate(self, attentions: Any, config: IHAConfig, **others: Any) -> None:
            P = [layer["num_pseudo_heads"] for layer in config.layer_schedule]
            first = tuple(  # pseudo-heads of each token
                tuple(
                    a.unflatten(3, (-1, p)).unflatten(2, (-1, p))[:, :, :, 0, :, 0]
                    for a, p in zip(step, P, strict=True)
                )
                for step in attentions
            )
            super()._check_attentions_for_generate(attentions=first, config=config, **others)

        def attention_mask_padding_matches_padding_free_with_position_ids(self, *args: Any, **kwargs: Any) -> None:
            # Taken by these tests to mean that documents can be packed. Ours can, with our own attention alone.
            with mock.patch.object(IHAForCausalLM, "_supports_attention_backend", True):
                super().attention_mask_padding_matches_padding_free_with_position_ids(*args, **kwargs)

    for test, sentence in REFUSED.items():
        setattr(Tests, test, None)
        setattr(Tests, test.replace("test_", "test_refused_", 1), _refused(test, sentence))
    if name in ("Hybrid", "Everywhere"):
        for test in ASSISTED:
            setattr(Tests, test, _without_attentions(test))
            setattr(Tests, test.replace("test_", "test_refused_", 1), _refused(test, "not supported in assisted"))
    return type(f"Test{name}", (Tests,), {})


class LlamaTester(causal_lm_tester.CausalLMModelTester):
    base_model_class = LlamaModel


class TestLlama(causal_lm_tester.CausalLMModelTest, unittest.TestCase):
    """A failure here is not ours: it comes from tests and package of different versions, or from this machine."""

    model_tester_class = LlamaTester


for _name, _fields in SETTINGS.items():
    globals()[f"Test{_name}"] = _tests_of(_name, _fields)
