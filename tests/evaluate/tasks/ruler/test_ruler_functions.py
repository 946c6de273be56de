"""RULER from lm-eval: the same prompts, and its engine gives the same scores."""

import importlib.util

import lm_eval
import pytest
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager
from material import byte_tokenizer, write_materials

from iha.evaluate.harness import TASK_FILES
from iha.evaluate.protocol import Source
from iha.evaluate.ruler.settings import TASK_NAMES
from iha.evaluate.ruler.tasks import RulerTask

LENGTH = 3900


class Oracle(LM):
    def __init__(self):
        super().__init__()
        self.prompts = {}

    def generate_until(self, requests, **_):
        for request in requests:
            self.prompts.setdefault(request.doc["setting"], []).append(
                (request.args[0], request.args[1]["max_gen_toks"])
            )
        return [" ".join(request.doc["reference"][:1]) for request in requests]

    def loglikelihood(self, requests):
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


def test_prompts_and_scores(tmp_path):
    write_materials(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path / "tokenizer")
    metadata = {"tokenizer": str(tmp_path / "tokenizer"), "length": LENGTH, "samples": 2, "data": str(tmp_path)}
    manager = TaskManager(include_path=str(TASK_FILES), include_defaults=False, metadata=metadata)
    model = Oracle()
    out = lm_eval.simple_evaluate(model, tasks=["iha_ruler"], task_manager=manager, bootstrap_iters=0)
    for setting in TASK_NAMES:
        ours = RulerTask(setting, LENGTH).questions(Source(tmp_path, limit=2, tokenizer=byte_tokenizer()))
        assert model.prompts[setting] == [(q.prompt + q.prefix, q.max_new_tokens) for q in ours], setting
        shares = sum(1 / len(q.reference) for q in ours) / 2  # the oracle says the first reference only
        result = out["results"][f"iha_ruler_{setting}"]
        assert result["ruler,none"] == pytest.approx(1 if setting == "qa_1" else shares)
        if setting != "qa_1":
            assert result["ruler_lm_eval,none"] == result["ruler,none"]
    assert out["results"]["iha_ruler_qa_1"]["ruler_lm_eval,none"] == 0.5  # "Town 00" and not "in Town 00"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [({"length": 4096}, "needs the model's tokenizer"), ({"tokenizer": "here"}, "samples have a length")],
)
def test_what_the_command_must_give_is_named(metadata, message):
    spec = importlib.util.spec_from_file_location("ruler_functions", TASK_FILES / "ruler" / "ruler_functions.py")
    functions = importlib.util.module_from_spec(spec)  # as lm-eval loads it: by its path
    spec.loader.exec_module(functions)
    with pytest.raises(ValueError, match=message):
        functions.samples("vt", **metadata)
