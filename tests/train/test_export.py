"""From a run to a Hugging Face directory, to text, and to the start of another run."""

import json

import pytest
import runs
import torch


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("exported")
    runs.completed(runs.tiny(directory), directory / "run", world=2)
    return directory / "run"


def test_from_pretrained_reads_what_was_trained_on_two_processes(run, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import iha.models  # noqa: F401  (registers the Auto classes)
    from iha.train.export import export

    assert export(run, tmp_path / "hf") == 6
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    saved = runs.weights(run, "model.")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, saved[name]), name
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokenizer("añ").input_ids == list("añ".encode())
    assert tokenizer.decode([*"añ".encode(), tokenizer.eos_token_id]) == "añ<|endoftext|>"
    out = model.generate(**tokenizer("Pairs:", return_tensors="pt"), max_new_tokens=3, do_sample=False)
    assert out.shape[1] <= 9


def test_a_chosen_step_and_the_errors(run, tmp_path):
    from iha.train.export import export

    assert export(run, tmp_path / "hf", step=4, dtype="bfloat16") == 4
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["dtype"] == "bfloat16"
    with pytest.raises(ValueError, match="no complete checkpoint of step 3; there are step-00000006, step-00000004"):
        export(run, tmp_path / "no", step=3)
    with pytest.raises(ValueError, match="not the directory of a training run"):
        export(tmp_path, tmp_path / "no")
    with pytest.raises(ValueError, match="dtype must be one of"):
        export(run, tmp_path / "no", dtype="int8")


def test_long_context_and_chat_runs_start_from_it(run, tmp_path):
    from iha.train.export import export

    export(run, tmp_path / "hf")
    chats = [
        {"messages": [{"role": "user", "content": "a?"}, {"role": "assistant", "content": f"b{i}"}]} for i in range(20)
    ]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    source = f"[{{name: chats, kind: jsonl, chat: chatml, paths: [{tmp_path}/chats.jsonl]}}]"
    recipe = runs.tiny(
        tmp_path, f"model.init_from={tmp_path}/hf", "model.config={}", "data.context=64", f"data.sources={source}",
        "data.packing=whole", "optimiser.learning_rate=1e-12", "schedule.steps=2", "schedule.warmup=1",
    )  # fmt: skip
    runs.completed(recipe, tmp_path / "sft")
    before, after = runs.weights(run, "model."), runs.weights(tmp_path / "sft", "model.")
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=1e-4, atol=1e-6)
    export(tmp_path / "sft", tmp_path / "chat")
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "chat")
    shown = tokenizer.apply_chat_template(chats[0]["messages"][:1], tokenize=False, add_generation_prompt=True)
    assert shown == "<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n"
    config = AutoConfig.from_pretrained(tmp_path / "chat")
    assert config.max_position_embeddings == 64
    assert config.layer_schedule[0] == {"mechanism": "iha", "window": 64 // 8, "num_pseudo_heads": 2}


def test_every_step_of_a_run_that_grows_has_its_own_size(tmp_path):
    from iha.models import IHAForCausalLM
    from iha.train.export import export

    recipe = runs.tiny(tmp_path, *runs.GROWING, "checkpoint.keep=3", "growth.every=3", "growth.count=4")
    runs.completed(recipe, tmp_path / "run")
    for step, number in ((2, 1), (4, 2), (6, 2)):
        assert export(tmp_path / "run", tmp_path / f"hf{step}", step=step) == step
        model = IHAForCausalLM.from_pretrained(tmp_path / f"hf{step}")
        assert [spec.per_token for spec in model.config.layers] == [(number, number)] * 2 + [(1, 1)]
    saved = runs.weights(tmp_path / "run", "model.")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, saved[name]), name
    # and training goes on from it, longer sequences too: the layers stay as they have grown
    again = runs.tiny(
        tmp_path, f"model.init_from={tmp_path}/hf6", "model.config={}", "data.context=64", "schedule.steps=2",
        "schedule.warmup=1",
    )  # fmt: skip
    runs.completed(again, tmp_path / "again")
    assert runs.weights(tmp_path / "again", "model.").keys() == saved.keys()
    schedule = json.loads((tmp_path / "again" / "config.json").read_text())["layer_schedule"]
    assert schedule == model.config.layer_schedule
