"""`iha bench trainer`: it measures what it says. Speed itself is not a test."""

import pytest

from iha.bench.trainer import Settings, measure_loader, measure_speed, own_bytes

TINY = """
model:
  config: {hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 2, global_every: 2}
data: {context: 32, batch: 4, sources: [{name: hops, kind: generated, generator: hops, count: 40}]}
"""


def test_trainer_and_bare_loop_take_turns(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    found = measure_speed(Settings(str(tmp_path / "tiny.yaml"), steps=12))
    assert found["steps"] == 11  # the first of each warms up
    speed = found["tokens_per_second"]
    assert found["ratio"] == pytest.approx(speed["trainer"] / speed["bare"])


def test_the_loaders_memory_does_not_grow_with_the_corpus():
    """From 1 MB to 64 MB: less than 8 MB more, wherever the batches come from."""
    small, large = (measure_loader(size, batches=50)["grown_bytes"] for size in (1, 64))
    assert large - small < 8 << 20
    held = bytearray(32 << 20)
    held[::4096] = b"x" * len(held[::4096])  # the meter itself sees memory that is taken
    assert own_bytes() > 32 << 20


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="steps must be at least 12, got 3"):
        Settings("r.yaml", steps=3)
