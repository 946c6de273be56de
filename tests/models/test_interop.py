"""The ecosystem: PEFT, TRL, Trainer, accelerate, each for a few steps."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from tiny import VOCABULARY, tiny_model, tokens

from iha.models import IHAForCausalLM

peft = pytest.importorskip("peft")
datasets = pytest.importorskip("datasets")


def _rows(count: int = 16, N: int = 12) -> "datasets.Dataset":
    x = tokens(count, N).tolist()
    return datasets.Dataset.from_dict({"input_ids": x, "labels": x})


def test_lora_on_the_projections(tmp_path: Path) -> None:
    model, x = tiny_model(), tokens(2, 9)
    before = model(x).logits.detach()
    lora = peft.LoraConfig(r=2, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM")
    wrapped = peft.get_peft_model(model, lora)
    torch.testing.assert_close(wrapped(x).logits, before)  # B starts at zero
    optimizer = torch.optim.SGD([p for p in wrapped.parameters() if p.requires_grad], lr=0.5)
    losses = []
    for _ in range(6):
        loss = wrapped(x, labels=x).loss
        losses.append(float(loss))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < losses[0]
    wrapped.eval()
    after = wrapped(x).logits.detach()
    wrapped.save_pretrained(tmp_path)
    reloaded = peft.PeftModel.from_pretrained(tiny_model(), tmp_path)
    torch.testing.assert_close(reloaded(x).logits, after)
    merged = wrapped.merge_and_unload()
    assert isinstance(merged, IHAForCausalLM)
    torch.testing.assert_close(merged(x).logits, after, rtol=0, atol=1e-4)
    assert merged.generate(x, max_new_tokens=3, do_sample=False).shape == (2, 12)


@pytest.mark.parametrize("kind", ["iha", "iha-everywhere", "global_local", "talking_heads"])
@pytest.mark.parametrize("T", [3, 6])  # shorter and longer than the windows
@torch.no_grad()
def test_prefix_tuning(kind: str, T: int) -> None:
    """A learned prefix is a cache: filled with the keys and values of tokens, it gives what those tokens give."""
    model, prefix, x = tiny_model(kind), tokens(1, T, seed=1), tokens(2, 9)
    expected = model(torch.cat((prefix.expand(2, -1), x), dim=1)).logits[:, T:]
    cache = transformers.DynamicCache()  # of full length in every layer
    model(prefix, past_key_values=cache, use_cache=True)
    learned = [
        t[0].transpose(0, 1).flatten(1) for layer in cache.layers for t in (layer.keys, layer.values)
    ]  # (T, G*D)
    settings = peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=T)
    wrapped = peft.get_peft_model(model, settings).eval()
    wrapped.prompt_encoder["default"].embedding.weight.copy_(torch.cat(learned, dim=1))
    found = wrapped(x, attention_mask=torch.ones_like(x)).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-5)
    new = wrapped.generate(input_ids=x, attention_mask=torch.ones_like(x), max_new_tokens=5, do_sample=False)
    whole = tiny_model(kind).generate(torch.cat((prefix.expand(2, -1), x), dim=1), max_new_tokens=5, do_sample=False)
    assert torch.equal(new[:, 9:], whole[:, T + 9 :])


def test_transformers_trainer(tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    model = tiny_model()
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, per_device_train_batch_size=4, learning_rate=1e-2, logging_steps=1,
        save_steps=4, report_to=[], use_cpu=True, gradient_checkpointing=True, seed=0,
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=_rows(), eval_dataset=_rows())
    before = trainer.evaluate()["eval_loss"]
    assert trainer.train().global_step == 4
    assert trainer.evaluate()["eval_loss"] < before
    saved = IHAForCausalLM.from_pretrained(tmp_path / "checkpoint-4")
    torch.testing.assert_close(saved(tokens(1, 5)).logits, model.eval()(tokens(1, 5)).logits)


@pytest.mark.parametrize("packing", [False, True])
def test_trl_sft_trainer(tmp_path: Path, packing: bool) -> None:
    trl = pytest.importorskip("trl")
    tokenizer = _tokenizer()
    text = datasets.Dataset.from_dict({"text": ["a b c d e f g h", "b c d e", "c d e f g a b"] * 6})
    arguments = trl.SFTConfig(
        output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=2, learning_rate=5e-3, logging_steps=1,
        report_to=[], use_cpu=True, max_length=16, packing=packing, save_strategy="no", seed=0, bf16=False,
    )  # fmt: skip
    trainer = trl.SFTTrainer(model=tiny_model(), args=arguments, train_dataset=text, processing_class=tokenizer)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 3
    assert losses[-1] < losses[0]


def _tokenizer() -> object:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<eos>": 1, **{letter: 2 + i for i, letter in enumerate("abcdefgh")}}
    assert len(vocabulary) <= VOCABULARY
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


@pytest.mark.slow
def test_two_steps_under_accelerate(tmp_path: Path) -> None:
    """Two processes, two steps: the weights afterwards are those of one process on the whole batch."""
    pytest.importorskip("accelerate")
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{here}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    for processes in (1, 2):
        command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", str(processes),
                   "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
                   str(here / "two_steps.py"), str(tmp_path / f"{processes}.pt")]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert result.returncode == 0, result.stderr[-3000:]
    one, two = (torch.load(tmp_path / f"{p}.pt", weights_only=True) for p in (1, 2))
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=0, atol=1e-5, msg=name)
