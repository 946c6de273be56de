"""The budget is kept, the choice is the best one, and what the model does not use is given up first."""

import pytest
import torch

from iha.accounting import AttentionShape, schedule_cache_bytes
from iha.evaluate.allocation import allocate, nested
from iha.evaluate.budget import Budget
from iha.evaluate.pseudo_heads import Tokens, held_out_loss
from iha.layers.schedule import LayerSpec
from iha.models import IHAConfig, IHAForCausalLM

TEXT = Tokens.of_text(torch.randint(0, 61, (2, 24), generator=torch.Generator().manual_seed(0)))
N = 256  # where attention outweighs mixing


def model(**options) -> IHAForCausalLM:
    torch.manual_seed(0)
    fields = {
        "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
        "max_position_embeddings": 64, "initializer_range": 0.2, "causal": "token", "rope_positions": "token",
        "window": 0, "global_every": 3, "mixing_init": "random",
    }  # fmt: skip
    return IHAForCausalLM(IHAConfig(**{**fields, **options})).eval()


def own_words(of: IHAForCausalLM) -> Tokens:
    """What the model itself would say: every change is a loss."""
    with torch.no_grad():
        return Tokens(TEXT.tokens, of(TEXT.tokens).logits.argmax(-1))


def test_subsets_are_nested_and_the_cheapest_goes_first() -> None:
    worth = (3, 1, 2)
    found = nested((0, 1, 2), lambda kept: -sum(worth[p] for p in kept))
    assert found == [(0, 1, 2), (0, 2), (0,)]


def test_a_layer_that_does_not_use_its_pseudo_heads_pays_for_one_that_does() -> None:
    """Layer 0 reads one pseudo-query only, so removing the other is exact: (2 + 4 + 1)/3 of global attention."""
    source = model(num_pseudo_heads=2)
    with torch.no_grad():
        source.model.layers[0].self_attn.collapse[:, 1] = 0
    smaller, results = allocate(source, own_words(source), Budget(flops=2.5), N)
    assert results["flops"] > 3  # (4 + 4 + 1)/3, and mixing
    allocated = results["allocated"]
    assert allocated["flops"] <= 2.5
    assert [spec.per_token for spec in smaller.config.layers] == [(1, 2), (2, 2), (1, 1)]
    assert allocated["layers"]["0"]["queries"] == (0,)
    assert allocated["loss"] == pytest.approx(results["loss"], abs=1e-5)
    assert held_out_loss(smaller, own_words(source)) == allocated["loss"]
    assert results["uniform"]["flops"] <= 2.5
    assert results["uniform"]["loss"] > allocated["loss"] + 1e-4
    assert len(results["options"]["1"]) == 4


def test_windows_are_tried_too() -> None:
    smaller, results = allocate(model(num_pseudo_heads=1, global_every=None), TEXT, Budget(flops=0.9), N, (1.0, 0.25))
    assert {spec.window for spec in smaller.config.layers} <= {None, 64}
    assert 64 in {spec.window for spec in smaller.config.layers}
    assert results["allocated"]["flops"] <= 0.9
    assert results["allocated"]["loss"] == pytest.approx(results["loss"], abs=1e-6)  # 24 tokens do not reach 64 back


def test_a_budget_of_cache_costs_windows_and_no_pseudo_head() -> None:
    """Un-mixed keys and values: their bytes depend on what a window reaches, whatever P."""
    source = model(num_pseudo_heads=2)
    smaller, results = allocate(source, own_words(source), Budget(cache=0.6), N, (1.0, 0.25))
    assert results["cache"] == 1.0
    assert [spec.per_token for spec in smaller.config.layers] == [(2, 2), (2, 2), (1, 1)]
    assert sorted(spec.window or N for spec in smaller.config.layers) == [64, 64, N]
    shape = AttentionShape(32, 4, causal="token")
    bytes_ = schedule_cache_bytes(shape, smaller.config.layers, N) / schedule_cache_bytes(shape, (LayerSpec(),) * 3, N)
    assert results["allocated"]["cache"] == pytest.approx(bytes_, rel=1e-12)
    assert bytes_ <= 0.6


def test_a_budget_of_latency_goes_by_the_times_that_it_is_given() -> None:
    """Here a pseudo-query costs nothing and a pseudo-key everything, which no formula says."""
    asked = []

    def latencies(shape, specs):
        asked.extend(specs)
        return {spec: 7.0 * (1 if spec == LayerSpec() else spec.per_token[1]) for spec in specs}

    source = model(num_pseudo_heads=2)
    smaller, results = allocate(source, own_words(source), Budget(latency=1.0), N, latencies=latencies)
    assert [spec.per_token for spec in smaller.config.layers] == [(2, 1), (2, 1), (1, 1)]
    assert results["allocated"]["latency"] == 1.0
    assert results["latency"] == pytest.approx(5 / 3)
    assert len(asked) == len(set(asked)) == 5  # four ways of the IHA layers, and multi-head attention


def test_two_budgets_hold_together() -> None:
    _, results = allocate(model(num_pseudo_heads=2), TEXT, Budget(flops=1.5, cache=0.6), N, (1.0, 0.25))
    assert results["allocated"]["flops"] <= 1.5
    assert results["allocated"]["cache"] <= 0.6
    assert results["allocated"].keys() >= {"loss", "predicted", "flops", "cache"}
    assert "latency" not in results


def test_mistakes_are_named() -> None:
    one = Budget(flops=1.0)
    with pytest.raises(ValueError, match=r"num_tokens must be at least 1, got 0"):
        allocate(model(), TEXT, one, 0)
    with pytest.raises(ValueError, match=r"shares in \(0, 1\], got \(2.0,\)"):
        allocate(model(), TEXT, one, N, (2.0,))
    with pytest.raises(ValueError, match="no IHA layer"):
        allocate(model(attention="global"), TEXT, one, N)
    with pytest.raises(ValueError, match=r"flops: the smallest layers already cost .* the budget is 0\.1"):
        allocate(model(), TEXT, Budget(flops=0.1), N)
    with pytest.raises(ValueError, match=r"latency, 0\.5, needs times"):
        allocate(model(), TEXT, Budget(latency=0.5), N)
