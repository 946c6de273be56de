"""`iha generate` from end to end, with a tiny model and a tokenizer of letters."""

import json
from pathlib import Path

import pytest
import torch
import typer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from iha.cli.generate import generate
from iha.models import IHAConfig, IHAForCausalLM

app = typer.Typer()
app.command()(generate)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = IHAConfig(
        vocab_size=12, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, window=4,
        global_every=2, max_position_embeddings=64, initializer_range=0.5, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    IHAForCausalLM(config).save_pretrained(tmp_path / "model")
    _tokenizer("abcdefgh").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def _tokenizer(letters: str) -> PreTrainedTokenizerFast:
    vocabulary = {"<pad>": 0, "<eos>": 1, **{letter: 2 + i for i, letter in enumerate(letters)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


def _run(*arguments: str | Path) -> object:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_greedy_streams_and_reports(checkpoint: Path, tmp_path: Path) -> None:
    result = _run(checkpoint, "a b c", "--temperature", "0", "--max-new-tokens", "6", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "out" / "generate.json").read_text())
    (generated,) = written["generated"]
    assert "tokens/s" in result.output
    model = IHAForCausalLM.from_pretrained(checkpoint)
    tokenizer = _tokenizer("abcdefgh")
    ids = torch.tensor([tokenizer.convert_tokens_to_ids(["a", "b", "c"])])
    out = model.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=1)[0, 3:]
    assert generated["new_tokens"] == len(out)
    assert generated["text"] == tokenizer.decode(out, skip_special_tokens=True)
    assert " ".join(generated["text"].split()) in " ".join(result.output.split())


def test_a_file_of_prompts_gives_what_each_alone_gives(checkpoint: Path, tmp_path: Path) -> None:
    """Batched with left padding."""
    prompts = ["a b c d e", "b", "c d"]
    (tmp_path / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": p}) for p in prompts))
    options = ("--temperature", "0", "--max-new-tokens", "5", "--out", tmp_path / "out")
    assert _run(checkpoint, "--prompts", tmp_path / "prompts.jsonl", *options).exit_code == 0
    together = json.loads((tmp_path / "out" / "generate.json").read_text())["generated"]
    for prompt, batched in zip(prompts, together, strict=True):
        assert _run(checkpoint, prompt, *options).exit_code == 0
        (alone,) = json.loads((tmp_path / "out" / "generate.json").read_text())["generated"]
        assert alone == batched


def test_sampling_is_reproducible(checkpoint: Path, tmp_path: Path) -> None:
    texts = []
    for seed in (1, 1, 2):
        options = (
            "--seed",
            seed,
            "--top-p",
            "0.9",
            "--top-k",
            "5",
            "--max-new-tokens",
            "12",
            "--out",
            tmp_path / "out",
        )
        assert _run(checkpoint, "a b", *options).exit_code == 0
        texts.append(json.loads((tmp_path / "out" / "generate.json").read_text())["generated"][0]["text"])
    assert texts[0] == texts[1] != texts[2]


def test_chat_template(checkpoint: Path, tmp_path: Path) -> None:
    out = ("--temperature", "0", "--max-new-tokens", "3", "--out", tmp_path / "out")
    refused = _run(checkpoint, "a", "--chat", *out)
    assert refused.exit_code == 2
    assert "no chat template" in refused.output
    tokenizer = _tokenizer("abcdefgh")
    tokenizer.chat_template = "{% for m in messages %}h {{ m['content'] }} g {% endfor %}"
    tokenizer.save_pretrained(checkpoint)
    assert _run(checkpoint, "a", *out).exit_code == 0
    chatted = json.loads((tmp_path / "out" / "generate.json").read_text())["generated"][0]["text"]
    assert _run(checkpoint, "h a g", "--no-chat", *out).exit_code == 0
    assert json.loads((tmp_path / "out" / "generate.json").read_text())["generated"][0]["text"] == chatted


def test_bad_input(checkpoint: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    for arguments, message in [
        ((tmp_path / "nothing", "a"), "no config.json"),
        ((checkpoint,), "give a prompt or"),
        ((checkpoint, "a", "--top-p", "2"), "top_p"),
        ((checkpoint, "a", "--max-new-tokens", "0"), "max_new_tokens"),
        ((checkpoint, "a", "--dtype", "int8"), "dtype"),
    ]:
        result = _run(*arguments, *out)
        assert result.exit_code == 2, arguments
        assert message in " ".join(result.output.replace("│", " ").split())
    _tokenizer("abcdefghijklmnop").save_pretrained(checkpoint)
    result = _run(checkpoint, "a", *out)
    assert result.exit_code == 2
    assert "18 tokens, the model only 12" in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists()
