"""`iha generate` from end to end, with a tiny model and a tokenizer of letters."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from iha.cli.main import app
from iha.models import IHAConfig, IHAForCausalLM


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
    return CliRunner().invoke(app, ["generate", *(str(a) for a in arguments)])


def test_greedy_streams_and_reports(checkpoint: Path, tmp_path: Path) -> None:
    result = _run(checkpoint, "a b c", "--temperature", "0", "--max-new-tokens", "6", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "out" / "generate.json").read_text())
    (generated,) = written["results"]["generated"]
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
    together = json.loads((tmp_path / "out" / "generate.json").read_text())["results"]["generated"]
    for prompt, batched in zip(prompts, together, strict=True):
        assert _run(checkpoint, prompt, *options).exit_code == 0
        (alone,) = json.loads((tmp_path / "out" / "generate.json").read_text())["results"]["generated"]
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
        texts.append(json.loads((tmp_path / "out" / "generate.json").read_text())["results"]["generated"][0]["text"])
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
    chatted = json.loads((tmp_path / "out" / "generate.json").read_text())["results"]["generated"][0]["text"]
    assert _run(checkpoint, "h a g", "--no-chat", *out).exit_code == 0
    assert json.loads((tmp_path / "out" / "generate.json").read_text())["results"]["generated"][0]["text"] == chatted


def test_a_file_without_prompts(checkpoint: Path, tmp_path: Path) -> None:
    for text, message in [
        ('{"text": "a"}', "line 1 is no object"), ('{"prompt": "a"}\n[1]', "line 2 is no object"),
        ("\n\n", "no prompt"),
        ('{"prompt": 3}', "no text"), ("{", "line 1 is no object"), ("[" * 10**5, "line 1 is no object"),
    ]:  # fmt: skip
        (tmp_path / "prompts.jsonl").write_text(text)
        result = _run(checkpoint, "--prompts", tmp_path / "prompts.jsonl", "--out", tmp_path / "out")
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert message in result.stderr
    (tmp_path / "prompts.txt").write_bytes(b"\xff\xfe\x00")
    assert _run(checkpoint, "--prompts", tmp_path / "prompts.txt", "--out", tmp_path / "out").exit_code == 2
    assert _run(checkpoint, "--prompts", tmp_path / "nowhere", "--out", tmp_path / "out").exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_bad_chat_template_is_named(checkpoint: Path, tmp_path: Path) -> None:
    tokenizer = _tokenizer("abcdefgh")
    for template in ("{% for %}", "{{ raise_exception('no') }}", "{{ messages[5]['x'] + 1 }}"):
        tokenizer.chat_template = template
        tokenizer.save_pretrained(checkpoint)
        result = _run(checkpoint, "a", "--out", tmp_path / "out")
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert "the chat template cannot be used" in result.stderr
    assert not (tmp_path / "out").exists()


def test_pickled_weights_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    model = IHAForCausalLM.from_pretrained(checkpoint)
    torch.save(model.state_dict(), checkpoint / "pytorch_model.bin")
    (checkpoint / "model.safetensors").unlink()
    result = _run(checkpoint, "a", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "pytorch_model.bin, a pickle" in result.stderr
    assert "save_pretrained" in result.stderr
    (checkpoint / "pytorch_model.bin").unlink()
    assert "no weights" in _run(checkpoint, "a", "--out", tmp_path / "out").stderr


def test_a_hole_in_the_checkpoint_is_an_error(checkpoint: Path, tmp_path: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    name = next(name for name in tensors if name.endswith("alpha_k"))
    save_file({n: t for n, t in tensors.items() if n != name}, checkpoint / "model.safetensors", {"format": "pt"})
    result = _run(checkpoint, "a", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert name in result.stderr


def test_json_on_stdout(checkpoint: Path, tmp_path: Path) -> None:
    result = _run(checkpoint, "a", "--max-new-tokens", "3", "--json", "--out", tmp_path / "out")
    assert json.loads(result.stdout) == json.loads((tmp_path / "out" / "generate.json").read_text())


def test_bad_input(checkpoint: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    for arguments, message in [
        ((tmp_path / "nothing", "a"), "no config.json"),
        ((checkpoint,), "give a prompt or"),
        ((checkpoint, "a", "--top-p", "2"), "top_p"),
        ((checkpoint, "a", "--max-new-tokens", "0"), "max_new_tokens"),
        ((checkpoint, "a", "--dtype", "int8"), "dtype"),
        ((checkpoint, "a", "--temperature", "inf"), "temperature"),
        ((checkpoint, "a", "--temperature", "nan"), "temperature"),
        ((checkpoint, "a", "--batch-size", "-1"), "--batch-size"),
        ((checkpoint, "a", "--device", "foo"), "no device 'foo'"),
        ((checkpoint, "a", "--device", "meta"), "no device 'meta'"),
        ((checkpoint, "a", "--seed", "-1"), "seed"),
    ]:
        result = _run(*arguments, *out)
        assert result.exit_code == 2, arguments
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
    _tokenizer("abcdefghijklmnop").save_pretrained(checkpoint)
    result = _run(checkpoint, "a", *out)
    assert result.exit_code == 2
    assert "18 tokens, the model only 12" in result.stderr
    assert not (tmp_path / "out").exists()
