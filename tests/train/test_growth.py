"""Where pseudo-heads grow: where the gradient in the new directions is largest, within the limits."""

import math

import pytest
import runs
import torch

from iha.accounting.flops import ratio_to_global
from iha.convert.grow import grown
from iha.models import IHAConfig, IHAForCausalLM
from iha.train.batches import Batch
from iha.train.flops import attention_shape
from iha.train.growth import Place, carry_over, check_growth, cost, gradients, growths, numbers_of, places
from iha.train.objective import Objective
from iha.train.optimise import build_optimiser
from iha.train.recipe import Growth, Recipe
from iha.train.state import initialise

TOKENS = torch.randint(0, 61, (2, 17), generator=torch.Generator().manual_seed(3))
BATCH = Batch(TOKENS[:, :-1], TOKENS[:, 1:], None)
ALL = [Place(layer, what) for layer in (0, 1) for what in ("queries", "keys")]


def model(**options) -> IHAForCausalLM:
    torch.manual_seed(0)
    fields = {
        "vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.2, "causal": "token",
        "rope_positions": "token", "window": 5, "global_every": 3, "mixing_init": "random", "num_pseudo_heads": 1,
    }  # fmt: skip
    return IHAForCausalLM(IHAConfig(**{**fields, **options})).double()


def recipe(**growth) -> Recipe:
    return Recipe(growth=Growth(**{"every": 1, **growth}))


def loss(of: IHAForCausalLM) -> float:
    with torch.no_grad():
        return float(Objective(of)(BATCH.tokens, BATCH.labels, None)) / BATCH.labels.numel()


def slopes(of: IHAForCausalLM, weight: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
    """Derivatives of the loss along every direction (a row has the shape of the weight), by central differences.

    The step is wide because RoPE is computed in float32.
    """
    found, step = [], 1e-3
    for direction in directions:
        with torch.no_grad():
            weight += step * direction
            above = loss(of)
            weight -= 2 * step * direction
            found.append((above - loss(of)) / (2 * step))
            weight += step * direction
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("collapse", ["per_head", "full"])
def test_the_gradient_is_that_of_the_loss_in_the_new_directions(collapse) -> None:
    """One place grown at a time, and finite differences of its loss: for keys along (a, -a)/√2 of the two copies."""
    source = model(collapse=collapse)
    found = gradients(source, ALL, recipe(), BATCH, BATCH.num_targets)
    for place in ALL:
        one = grown(source, place.doubled(numbers_of(source.config.layers)))
        attention = one.model.layers[place.layer].self_attn
        if place.what == "queries":
            weight = attention.collapse
            new = torch.eye(weight.numel(), dtype=torch.float64).view(-1, *weight.shape)
            new = new[new.unflatten(-1, (-1, 2))[..., 1].flatten(1).any(dim=1)]
        else:
            weight = attention.alpha_k
            apart = torch.eye(4, dtype=torch.float64).view(4, 2, 2, 1)
            new = torch.cat((apart, -apart), dim=3) / math.sqrt(2)
        wanted = slopes(one, weight, new).norm()
        assert found[place] == pytest.approx(float(wanted), rel=1e-4)
    assert len({round(norm, 9) for norm in found.values()}) == 4


def test_the_places_with_the_largest_gradients_grow() -> None:
    source = model()
    asked = gradients(source, ALL, recipe(), BATCH, BATCH.num_targets)
    ranked = sorted(ALL, key=lambda place: -asked[place])
    for count in (1, 3):
        numbers, done = growths(source, recipe(count=count), BATCH, BATCH.num_targets)
        assert [Place(d["layer"], d["what"]) for d in done] == ranked[:count]
        assert [d["gradient"] for d in done] == [asked[place] for place in ranked[:count]]
        expected = numbers_of(source.config.layers)
        for place in ranked[:count]:
            expected = place.doubled(expected)
        assert numbers == expected
        assert loss(grown(source, numbers)) == pytest.approx(loss(source), rel=1e-12)


def test_limits_are_kept() -> None:
    config, two = model().config, {0: (2, 1), 1: (1, 1)}
    assert places(config, two, Growth(until=2), 64) == [Place(0, "keys"), Place(1, "queries"), Place(1, "keys")]
    assert len(places(config, two, Growth(until=4), 64)) == 4
    now = cost(config, two, 64)
    grown_model = grown(model(), two)
    layers = grown_model.config.layers
    by_accounting = ratio_to_global(attention_shape(config), layers, 64, parts=("attention", "mixing"))
    assert now == pytest.approx(float(by_accounting))
    assert places(config, two, Growth(until=4, flops=now), 64) == []
    numbers, done = growths(grown_model, recipe(until=2, count=9), BATCH, BATCH.num_targets)
    assert numbers == {0: (2, 2), 1: (2, 2)}
    assert len(done) == 3
    assert growths(grown(model(), numbers), recipe(until=2), BATCH, 1.0) == (numbers, [])


def test_a_gradient_that_is_not_finite_grows_nothing() -> None:
    broken = model()
    with torch.no_grad():
        broken.lm_head.weight[0, 0] = math.nan
    assert growths(broken, recipe(), BATCH, 1.0) == ({0: (1, 1), 1: (1, 1)}, [])


@pytest.mark.parametrize("collapse", ["per_head", "full"])
def test_moments_stay_with_their_weights_and_new_weights_begin_with_zeros(collapse) -> None:
    source = model(collapse=collapse)
    settings = Recipe().optimiser
    optimiser = build_optimiser(source, settings)
    initialise(optimiser)
    Objective(source)(BATCH.tokens, BATCH.labels, None).backward()
    optimiser.step()
    more = grown(source, {1: (2, 2)})
    fresh = build_optimiser(more, settings)
    initialise(fresh)
    carry_over((source, optimiser), (more, fresh))
    old = dict(source.named_parameters())
    for name, parameter in more.named_parameters():
        assert float(fresh.state[parameter]["step"]) == 1
        for moment in ("exp_avg", "exp_avg_sq"):
            now, before = fresh.state[parameter][moment], optimiser.state[old[name]][moment]
            assert before.abs().max() > 0
            if now.shape == before.shape:
                assert torch.equal(now, before), name
                continue
            one, new = now.unflatten(-1, (-1, 2)).unbind(dim=-1)
            assert torch.equal(one.reshape(before.shape), before), name
            assert not new.any(), name


def test_what_cannot_grow_is_refused() -> None:
    def refused(match: str, world: int = 1, of: IHAForCausalLM | None = None, **growth) -> None:
        with pytest.raises(ValueError, match=match):
            check_growth(recipe(**growth), (of or model()).config, world)

    refused("weights that FSDP2 has sharded cannot grow.* got 2 in float32", world=2)
    refused("within growth.until 1 and growth.flops None this model has no layer that can grow", until=1)
    refused("growth.flops 0.001 this model has no layer", flops=0.001)
    refused("no layer that can grow", of=model(attention="global"))
    refused("both must be 'token'", of=model(causal="virtual"))
    check_growth(Recipe(), model(causal="virtual").config, 2)  # nothing is to grow
    check_growth(recipe(), model().config, 1)
    with pytest.raises(ValueError, match="every must be positive, got 0"):
        Growth(every=0)


def test_recipes_have_it(tmp_path) -> None:
    assert runs.tiny(tmp_path, "growth={every: 3, until: 4}").growth == Growth(every=3, until=4)
    assert runs.tiny(tmp_path).growth.every is None
