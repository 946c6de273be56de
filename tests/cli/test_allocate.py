"""`iha allocate`: a smaller checkpoint that loads, and a record of what was measured."""

import torch
from transformers import AutoTokenizer

from cli.calls import assert_refused, iha
from iha.models import IHAForCausalLM
from iha.models.configuration import IHAConfig
from iha.records import read_record


def test_a_checkpoint_within_the_budget(trained, tmp_path):
    """The trained export has the virtual index, which has to go first; its tokenizer serves a model that has not."""
    tokenizer = AutoTokenizer.from_pretrained(trained / "export")
    torch.manual_seed(0)
    config = IHAConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, causal="token", rope_positions="token", window=0, global_every=None,
    )  # fmt: skip
    source, text = tmp_path / "source", tmp_path / "text.txt"
    IHAForCausalLM(config).save_pretrained(source)
    tokenizer.save_pretrained(source)
    text.write_text("Ann is the boss of Ben. Ben is the boss of Carl. " * 20)
    words = ["--data", text, "--flops", 3, "--length", 16, "--sequences", 2, "--out", tmp_path / "out"]
    result = iha("allocate", source, tmp_path / "smaller", *words)
    assert result.exit_code == 0, result.output
    record = read_record(tmp_path / "out" / "allocation.json", "allocation")
    assert record.results["allocated"]["flops"] <= 3 < record.results["flops"]
    smaller = IHAForCausalLM.from_pretrained(tmp_path / "smaller")
    assert min(max(spec.per_token) * min(spec.per_token) for spec in smaller.config.layers) < 4
    assert AutoTokenizer.from_pretrained(tmp_path / "smaller").get_vocab() == tokenizer.get_vocab()

    words[2:4] = ["--latency", 9, "--cache", 0.8, "--windows", "1,0.5", "--rounds", 1]
    result = iha("allocate", source, tmp_path / "timed", *words)
    assert result.exit_code == 0, result.output
    record = read_record(tmp_path / "out" / "allocation.json", "allocation")
    assert record.config["budget"] == {"latency": 9, "cache": 0.8}
    assert record.results["allocated"]["cache"] <= 0.8
    assert record.results["allocated"]["latency"] > 0
    assert "latency" in result.stdout
    assert record.results["quiet"].keys() >= {"load_before", "warnings"}

    refused = iha("allocate", source, tmp_path / "smaller", *words)
    assert_refused(refused, "exists already")
    other = tmp_path / "other"
    assert_refused(iha("allocate", source, other, "--data", tmp_path / "none.txt"), "is no text file")
    both = iha("allocate", source, other, "--data", text, "--flops", 1, "--latency", 0.5)
    assert_refused(both, "flops 1 and latency 0.5 both limit compute")
    assert_refused(
        iha("allocate", source, other, "--data", text, "--cache", -1), "must be positive and finite, got -1.0"
    )
    virtual = iha("allocate", trained / "export", other, *words)  # known only once the model is loaded
    assert virtual.exit_code == 2
    assert virtual.stderr.splitlines()[-1].endswith("both must be 'token'")
    assert not other.exists()
