"""Templates, answer prefixes and settings, against lm-eval's port of NVIDIA's code."""

import ast
import importlib
import inspect

import pytest

pytest.importorskip("lm_eval")

from iha.evaluate.ruler.settings import (
    COMMON_WORDS,
    FAMILIES,
    FREQUENT_WORDS,
    NEEDLE_TASKS,
    NIAH,
    QUESTIONS,
    TASK_NAMES,
    VARIABLE_TRACKING,
)


def theirs(module):
    return importlib.import_module(f"lm_eval.tasks.ruler.{module}")


def test_templates_of_words_and_questions_are_theirs():
    for family, module in ((COMMON_WORDS, "cwe_utils"), (FREQUENT_WORDS, "fwe_utils"), (QUESTIONS, "qa_utils")):
        config = theirs(module).CONFIG
        assert family.template == config["template"]
        assert family.prefix.strip() == config["answer_prefix"].strip()
        assert family.new_tokens == config["tokens_to_generate"]
    config = theirs("vt_utils").CONFIG["variable_tracking"]
    assert VARIABLE_TRACKING.template == config["template"]
    assert VARIABLE_TRACKING.prefix.replace("{count}", "{num_v}") == config["answer_prefix"]
    assert VARIABLE_TRACKING.new_tokens == config["tokens_to_generate"]
    assert theirs("niah_utils").TEMPLATE.replace("{type_needle_v}", "{type}") == NIAH.template


@pytest.mark.parametrize("name", NEEDLE_TASKS)
def test_needle_settings_are_theirs(name):
    """Read from the keywords of their generator's call."""
    tree = ast.parse(inspect.getsource(getattr(theirs("niah_utils"), name)))
    call = next(
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "generate_samples"
    )
    said = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
    ours = NEEDLE_TASKS[name]
    assert ours.haystack == {"repeat": "noise"}.get(said["type_haystack"], said["type_haystack"])
    assert (ours.key, ours.value) == (said["type_needle_k"], said["type_needle_v"])
    keys, values, queries = (said.get(key, 1) for key in ("num_needle_k", "num_needle_v", "num_needle_q"))
    # Their generator makes as many keys as it asks for, at least.
    assert (ours.keys, ours.values, ours.queries) == (max(keys, queries), values, queries)


def test_thirteen_tasks():
    assert len(TASK_NAMES) == len(set(TASK_NAMES)) == 13
    assert [FAMILIES[name].new_tokens for name in TASK_NAMES] == [128] * 8 + [30, 120, 50, 32, 32]
