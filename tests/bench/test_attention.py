"""What `iha bench attention` measures: the right sides, memory within its bound, a complete record."""

import pytest
import torch

from iha.bench import attention as bench
from iha.layers.schedule import flop_matched_window
from iha.ops import reference

SMALL = bench.Settings(
    tokens=64, heads=2, head_dim=8, pseudo_heads=(2, 1), repeats=3, lengths=(32, 64), longest_sdpa=32, growth_window=8,
    mechanism_tokens=32, decoding_window=8,
)  # fmt: skip


def test_local_attention_allocates_nothing_quadratic_and_less_than_three_times_its_pseudo_heads():
    """The bound on peak memory, at a length where N·P x W·P would break it many times over."""
    sizes = bench.Sizes(num_tokens=4096, num_heads=2, head_dim=16)
    for P in (2, 4):
        for use in bench.memory(sizes, P):
            scores = sizes.num_tokens * P * use.window * P * 4
            assert use.largest_bytes < scores / 8, use
            assert use.peak_over_mixed < 3, use


def test_the_sides_compute_what_they_say(monkeypatch):
    """Both sides of every comparison are run as they are timed, and held against the reference."""
    seen, take_turns = {}, bench.take_turns

    def turns(sides, rounds):
        seen.update({name: run() for name, run in sides.items()})
        return take_turns(sides, rounds)

    monkeypatch.setattr(bench, "take_turns", turns)
    made = []
    for name in ("heads", "mixing"):
        original = getattr(bench.Sizes, name)
        monkeypatch.setattr(bench.Sizes, name, lambda self, n, f=original: made.append(f(self, n)) or made[-1])
    sizes, P = bench.Sizes(num_tokens=64, num_heads=2, head_dim=8, repeats=1), 2
    W = flop_matched_window(64, P)
    for compare, window, length in ((bench.compare_local, W, 64), (bench.compare_global, None, 128)):
        made.clear()
        monkeypatch.setattr(bench, "_forward_backward", bench._forward)  # outputs of both directions
        rows = compare(sizes, P)
        (q, k, v), mixing, (q2, k2, v2) = made
        want = reference.interleaved_head_attention(q, k, v, *mixing, window=window)
        torch.testing.assert_close(seen["a"], want, atol=1e-5, rtol=1e-4)
        assert q2.shape[1] == length
        eye = torch.eye(2)[:, :, None]
        plain = reference.interleaved_head_attention(q2, k2, v2, eye, eye, eye, torch.ones(2, 1))
        torch.testing.assert_close(seen["b"], plain, atol=1e-5, rtol=1e-4)
        assert [(row.num_pseudo_heads, row.window) for row in rows] == [(P, window)] * 2


def test_sdpa_is_left_out_where_it_would_take_too_long():
    points = bench.growth(SMALL.sizes(), 2, 8, (32, 64), longest_sdpa=32)
    assert [(p.num_tokens, p.direction, p.seconds_sdpa is None) for p in points] == [
        (32, "forward", False), (32, "forward + backward", False), (64, "forward", True),
        (64, "forward + backward", True),
    ]  # fmt: skip


def test_the_record_is_complete():
    record = bench.run(SMALL, "iha bench attention")
    assert record.kind == "attention-bench"
    assert record.config["pseudo_heads"] == (2, 1)
    # Local and dense for both P, global for the smaller one only; forward and backward of each.
    assert len(record.results["comparisons"]) == 2 * (2 * 2 + 1)
    assert len(record.results["growth"]) == 2 * 2 * 2
    assert len(record.results["decoding"]) == 2 * 2
    assert all(len(row["ratios"]) == 3 for row in record.results["mechanisms"])
    assert set(record.results["quiet"]) == {"load_before", "load_after", "largest_spread", "warnings"}


def test_a_quick_bench_is_the_comparisons_alone():
    parts = [part for _, part, _ in bench._measurements(bench.replace(SMALL, quick=True))]
    assert set(parts) == {"comparisons", "memory", "decoding"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tokens": 0}, "tokens must be at least 1, got 0"),
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
        ({"dtype": "int8"}, "'int8'"),
        ({"pseudo_heads": (2, 0)}, r"got \(2, 0\)"),
        ({"pseudo_heads": ()}, r"got \(\)"),
        ({"tokens": 16, "pseudo_heads": (4,)}, "16 tokens, 4 pseudo-heads"),
    ],
    ids=str,
)
def test_bad_settings_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        bench.Settings(**options)
