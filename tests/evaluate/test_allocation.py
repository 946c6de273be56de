"""The budget is kept, the choice is the best one, and what the model does not use is given up first."""

import itertools

import pytest
import torch

from iha.convert.resize import Kept
from iha.evaluate.allocation import Option, allocate, nested, solve
from iha.evaluate.pseudo_heads import Tokens, held_out_loss
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


def option(rise: float, flops: int) -> Option:
    return Option(Kept((0,), (0,), None), rise, flops)


def test_the_choice_is_the_best_one_of_all() -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        rises, costs = torch.rand(4, 4, generator=generator), torch.randint(1, 90, (4, 4), generator=generator)
        options = {n: [option(float(r), int(c)) for r, c in zip(rises[n], costs[n], strict=True)] for n in range(4)}
        budget = float(costs.float().mean() * 4)
        within = [c for c in itertools.product(*options.values()) if sum(o.flops for o in c) <= 0.999 * budget]
        found = solve(options, budget).values()
        assert sum(o.flops for o in found) <= budget
        assert sum(o.rise for o in found) <= min(sum(o.rise for o in c) for c in within) + 1e-12
    with pytest.raises(ValueError, match=r"already cost 0\.5"):
        solve({0: [option(0, 50)]}, 40, lambda flops: flops / 100)


def test_subsets_are_nested_and_the_cheapest_goes_first() -> None:
    worth = (3, 1, 2)
    found = nested((0, 1, 2), lambda kept: -sum(worth[p] for p in kept))
    assert found == [(0, 1, 2), (0, 2), (0,)]


def test_a_layer_that_does_not_use_its_pseudo_heads_pays_for_one_that_does() -> None:
    """Layer 0 reads one pseudo-query only, so removing the other is exact: (2 + 4 + 1)/3 of global attention."""
    source = model(num_pseudo_heads=2)
    with torch.no_grad():
        source.model.layers[0].self_attn.collapse[:, 1] = 0
        said = source(TEXT.tokens).logits.argmax(-1)  # what the model itself would say: every change is a loss
    smaller, results = allocate(source, Tokens(TEXT.tokens, said), 2.5, N)
    assert results["flops"] > 3  # (4 + 4 + 1)/3, and mixing
    allocated = results["allocated"]
    assert allocated["flops"] <= 2.5
    assert [spec.per_token for spec in smaller.config.layers] == [(1, 2), (2, 2), (1, 1)]
    assert allocated["layers"]["0"]["queries"] == (0,)
    assert allocated["loss"] == pytest.approx(results["loss"], abs=1e-5)
    assert held_out_loss(smaller, Tokens(TEXT.tokens, said)) == allocated["loss"]
    assert results["uniform"]["flops"] <= 2.5
    assert results["uniform"]["loss"] > allocated["loss"] + 1e-4
    assert len(results["options"]["1"]) == 4


def test_windows_are_tried_too() -> None:
    smaller, results = allocate(model(num_pseudo_heads=1, global_every=None), TEXT, 0.9, N, (1.0, 0.25))
    assert {spec.window for spec in smaller.config.layers} <= {None, 64}
    assert 64 in {spec.window for spec in smaller.config.layers}
    assert results["allocated"]["flops"] <= 0.9
    assert results["allocated"]["loss"] == pytest.approx(results["loss"], abs=1e-6)  # 24 tokens do not reach 64 back


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"flops must be positive .* got -1"):
        allocate(model(), TEXT, -1, N)
    with pytest.raises(ValueError, match=r"shares in \(0, 1\], got \(2.0,\)"):
        allocate(model(), TEXT, 1, N, (2.0,))
    with pytest.raises(ValueError, match="no IHA layer"):
        allocate(model(attention="global"), TEXT, 1, N)
    with pytest.raises(ValueError, match="the smallest layers already cost"):
        allocate(model(), TEXT, 0.1, N)
