"""`lm_eval` from its own command line on a saved model: its numbers are those of the model, one text at a time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from iha.models import IHAForCausalLM

LETTERS = "abcdefghijklmnop"
NEW_TOKENS = 6
# Of different lengths, so that batches of two are padded, and longer than the window of 4.
QUESTIONS = ["a b c", "d e f g h i j k l", "m n", "o p a c e g i k m o b d f h"]
CHOICES = ["d", "e f g", "p o n m l"]
TASKS = {
    "choose": """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: 0
metric_list: [{metric: acc}]
""",
    "continue": f"""
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: ""
generation_kwargs: {{until: ["never"], do_sample: false, max_gen_toks: {NEW_TOKENS}}}
metric_list: [{{metric: exact_match}}]
""",
    "read": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}}"
metric_list: [{metric: word_perplexity}]
""",
}


@pytest.mark.slow
def test_command_line(tmp_path: Path) -> None:
    """Nothing in that process imports `iha`: the stub beside the weights does."""
    pytest.importorskip("lm_eval")
    model, tokenizer = tiny_model(), _tokenizer()
    model.save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    samples = _lm_eval(tmp_path)
    # float64 and the plain formula: what the command, in float32 and in padded batches, is measured against.
    oracle = IHAForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float64, attn_implementation="eager").eval()

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    assert [len(samples[name]) for name in TASKS] == [len(QUESTIONS)] * 3
    for sample in samples["choose"]:
        context = encode(sample["doc"]["question"])
        expected = [_log_probability(oracle, context, encode(choice)) for choice in CHOICES]
        assert [float(r[0]) for r in sample["filtered_resps"]] == pytest.approx(expected, abs=2e-5)
        assert sample["acc"] == float(max(expected) == expected[0])
    for sample in samples["continue"]:
        assert encode(sample["resps"][0][0]) == _greedy(oracle, encode(sample["doc"]["question"]))
    for sample in samples["read"]:
        # The first token is predicted too: from the end of text, where a tokenizer has no beginning.
        expected = _log_probability(oracle, [tokenizer.eos_token_id], encode(sample["doc"]["question"]))
        assert [float(r) for r in sample["filtered_resps"]] == pytest.approx([expected], abs=2e-5)


def _tokenizer() -> PreTrainedTokenizerFast:
    """A word for every id but padding, so that whatever is generated can be read back."""
    vocabulary = {"<pad>": 0, "<eos>": 1, **{letter: 2 + i for i, letter in enumerate(LETTERS)}}
    vocabulary |= {f"w{i}": i for i in range(len(vocabulary), 61)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


def _lm_eval(tmp_path: Path) -> dict[str, list[dict[str, Any]]]:
    """Run the three tasks on the model in `m`; what it logged of every document, by task."""
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    documents = [json.dumps({"question": question, "choices": CHOICES}) for question in QUESTIONS]
    (tasks / "documents.jsonl").write_text("\n".join(documents) + "\n")
    for name, text in TASKS.items():
        source = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {tasks / 'documents.jsonl'}}}}}\n"
        (tasks / f"{name}.yaml").write_text(f"task: iha_{name}\n{source}test_split: test\n{text}")
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "hf", "--device", "cpu", "--batch_size", "2"]
    command += ["--model_args", f"pretrained={tmp_path / 'm'},trust_remote_code=True"]
    command += ["--tasks", *(f"iha_{name}" for name in TASKS), "--include_path", str(tasks)]
    command += ["--output_path", str(tmp_path / "out"), "--log_samples"]
    environment = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    logged = {name: next((tmp_path / "out").rglob(f"samples_iha_{name}_*.jsonl")) for name in TASKS}
    return {name: [json.loads(line) for line in path.read_text().splitlines()] for name, path in logged.items()}


@torch.no_grad()
def _log_probability(model: IHAForCausalLM, context: list[int], continuation: list[int]) -> float:
    x = torch.tensor([context + continuation])
    logp = model(x).logits[0, len(context) - 1 : -1].log_softmax(-1)  # (tokens of the continuation, vocabulary)
    return float(logp.gather(-1, torch.tensor(continuation)[:, None]).sum())


@torch.no_grad()
def _greedy(model: IHAForCausalLM, context: list[int]) -> list[int]:
    """Argmax of the whole sequence again and again: no cache, no padding."""
    x = torch.tensor([context])
    for _ in range(NEW_TOKENS):
        x = torch.cat([x, model(x).logits[:, -1:].argmax(-1)], dim=1)
    return x[0, len(context) :].tolist()
