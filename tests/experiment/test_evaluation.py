"""Exports answer questions: both phases, all tasks, resumable, and the record says what the files say."""

import json

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from iha import IHAConfig, IHAForCausalLM
from iha.evaluate.results import read_answered, read_evaluation
from iha.experiment.evaluation import Scope, evaluate_models
from iha.report.scale_model import evaluation_table
from iha.train.tokenise import byte_tokenizer

RULER = ("ruler_niah_single_1_1024", "ruler_niah_multikey_2_1024")
SCOPE = Scope(lengths=(1024,), limit=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Untrained models that know only bytes."""
    runs = tmp_path_factory.mktemp("runs")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), pad_token="\x00")
    torch.manual_seed(0)
    for phase in ("adapt", "tune"):
        for attention in ("iha", "global"):
            config = IHAConfig(
                vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                num_attention_heads=2, max_position_embeddings=2048, attention=attention, pad_token_id=0,
                bos_token_id=None, eos_token_id=None, global_every=None,
            )  # fmt: skip
            out = runs / f"{phase}-{attention}-s0" / "export"
            IHAForCausalLM(config).save_pretrained(out)
            tokenizer.save_pretrained(out)
    return runs


def test_the_record_says_what_the_files_say(runs, tmp_path):
    record = evaluate_models(runs, ("global", "iha"), tmp_path, SCOPE, command="iha")
    for phase, names in (
        ("adapt", [*RULER, "puzzle_pairs", "puzzle_hops"]),
        ("tune", ["puzzle_arithmetic"]),
    ):  # fmt: skip
        for mechanism, label in (("global", "Global"), ("iha", "IHA")):
            found = record.results[phase][mechanism]
            written = read_evaluation(tmp_path / f"{phase}-{mechanism}")
            assert found["label"] == label == written.config["model"]
            assert list(found["tasks"]) == names
            for name in names:
                assert found["tasks"][name]["metrics"] == written.results[name]["metrics"]
                answered = read_answered(tmp_path / f"{phase}-{mechanism}" / f"{name}.jsonl.gz")
                assert [a["text"] for a in found["answers"][name]] == [a.samples[0] for a in answered]
                assert all(a.question.prompt.endswith(k["prompt"].removesuffix(a.question.prefix))
                           for a, k in zip(answered, found["answers"][name], strict=True))  # fmt: skip
    json.dumps(record.results, allow_nan=False)
    table = evaluation_table(record, "adapt").markdown()
    assert "niah_multikey_2, 1024 tokens" in table
    assert "2 questions per task" in table
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jsonl.gz")}
    again = evaluate_models(runs, ("global", "iha"), tmp_path, SCOPE, command="iha")
    assert again.results == record.results
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jsonl.gz")} == before


def test_what_is_missing_is_refused_before_any_work(runs, tmp_path):
    with pytest.raises(ValueError, match=r"tune-talking_heads-s0|adapt-talking_heads-s0"):
        evaluate_models(runs, ("iha", "talking_heads"), tmp_path / "out", SCOPE, command="iha")
    with pytest.raises(ValueError, match="'flash' is not one of global"):
        evaluate_models(runs, ("flash",), tmp_path / "out", SCOPE, command="iha")
    assert not (tmp_path / "out").exists()
