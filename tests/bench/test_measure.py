"""Clocks and scales: turns, thirds, and the two signs that a machine was not quiet."""

import pytest
import torch

from iha.bench import measure
from iha.bench.measure import Times, Watch, allocated, take_turns

MIB = 1 << 20


def test_allocations_are_seen_inside_operators_too():
    a = torch.zeros(MIB // 4)

    def run():
        b = a + 1  # 1 MiB, freed before the next line allocates
        del b
        torch.cat((a, a, a))  # 3 MiB

    use = allocated(run)
    assert use.largest == 3 * MIB
    assert 3 * MIB <= use.peak < 3.1 * MIB


def test_sides_take_turns_and_the_first_round_does_not_count():
    order = []
    times = take_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2)
    assert order == ["a", "b"] * 3
    assert {name: len(seconds) for name, seconds in times.rounds.items()} == {"a": 2, "b": 2}


def test_a_ratio_is_of_the_best_and_each_third_of_the_rounds_has_its_own():
    times = Times({"a": [4.0, 2.0, 9.0, 3.0, 8.0, 6.0], "b": [1.0, 1.0, 3.0, 2.0, 4.0, 2.0]})
    assert times.ratio("a", "b") == 2.0
    assert times.ratios("a", "b") == [2.0, 1.5, 3.0]
    assert times.spread("a", "b") == 1.0


@pytest.mark.parametrize(("rounds", "runs"), [(1, 1), (2, 2), (3, 3), (7, 3)])
def test_every_round_belongs_to_one_run(rounds, runs):
    times = Times({"a": [float(2 ** (i + 1)) for i in range(rounds)], "b": [1.0] * rounds})
    ratios = times.ratios("a", "b")
    assert len(ratios) == runs
    assert ratios[0] == times.ratio("a", "b") == 2.0  # the smallest comes first
    assert ratios == sorted(ratios)
    assert (times.spread("a", "b") is None) == (rounds == 1)


@pytest.mark.parametrize(
    ("load", "threads", "spreads", "words"),
    [
        (0.2, 2, [0.01, 0.14, None], []),
        (0.2, 2, [0.01, 0.4], ["1 of 2 ratios differ by more than 15% between runs, the worst by 40%"]),
        (1.4, 1, [], []),
        (1.6, 2, [], ["load 1.6 on 2 cores, of which the bench uses 2"]),
        (11.0, 1, [3.0], ["load 11.0 on 2 cores", "the worst by 300%"]),
        (None, 2, [0.0], []),
    ],
)
def test_a_busy_machine_is_noticed(monkeypatch, load, threads, spreads, words):
    monkeypatch.setattr(measure, "load_average", lambda: load)
    monkeypatch.setattr(measure.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(measure.torch, "get_num_threads", lambda: threads)
    quiet = Watch().judge(spreads)
    assert len(quiet.warnings) == len(words)
    for warning, expected in zip(quiet.warnings, words, strict=True):
        assert expected in warning
    assert (quiet.load_before, quiet.load_after) == (load, load)
