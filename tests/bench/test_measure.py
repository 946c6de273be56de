import torch

from iha.accounting import attention_bench as bench
from iha.accounting.measure import allocated, best_seconds

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


def test_sides_take_turns():
    order = []
    best = best_seconds({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=2)
    assert order == ["a", "b"] * 3
    assert set(best) == {"a", "b"}


def test_local_attention_allocates_nothing_quadratic_and_less_than_three_times_its_pseudo_heads():
    """The bound that the issue sets on peak memory, at a length where N·P x W·P would break it many times over."""
    sizes = bench.Sizes(num_tokens=4096, num_heads=2, head_dim=16)
    for P in (2, 4):
        for use in bench.memory(sizes, P):
            scores = sizes.num_tokens * P * use.window * P * 4
            assert use.largest_bytes < scores / 8, use
            assert use.peak_over_mixed < 3, use


def test_comparisons_compare_what_they_say():
    sizes = bench.Sizes(num_tokens=64, num_heads=2, head_dim=8, repeats=1)
    for compare in (bench.compare_local, bench.compare_global, bench.compare_dense_mask):
        for comparison in compare(sizes, 2):
            assert comparison.as_json()["ratio"] == comparison.seconds / comparison.seconds_against > 0
    assert [(p.num_tokens, p.seconds_sdpa is None) for p in bench.growth(sizes, 2, 8, (32, 64), longest_sdpa=32)] == [
        (32, False), (32, False), (64, True), (64, True),
    ]  # fmt: skip
