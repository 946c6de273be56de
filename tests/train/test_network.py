"""A network that grows goes on as it was: same loss, same optimiser, and a checkpoint knows how large it is."""

import pytest
import runs
import torch

from iha.train import state as training_state
from iha.train.batches import Batch
from iha.train.build import build_model, model_config
from iha.train.network import Network
from iha.train.parallel import Processes
from iha.train.step import gradient, update

ALONE = Processes(0, 1, torch.device("cpu"))
TOKENS = torch.randint(0, 256, (4, 33), generator=torch.Generator().manual_seed(0))
BATCH = Batch(TOKENS[:, :-1], TOKENS[:, 1:], None)


def network(directory, *overrides: str) -> Network:
    recipe = runs.tiny(directory, *runs.GROWING, *overrides)
    return Network(build_model(recipe, model_config(recipe, 257, 256)), recipe, ALONE)


def stepped(of: Network, steps: int = 1) -> float:
    for group in of.optimiser.param_groups:
        group["lr"] = 1e-2
    for _ in range(steps):
        loss, norm = gradient(of.objective, BATCH, BATCH.num_targets, 1, 4)
        update(of.objective, of.optimiser, norm, 1.0)
    return float(loss)


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-12), ("float32", 1e-6)])
def test_the_loss_right_after_growth_is_the_loss_right_before(tmp_path, precision, tolerance) -> None:
    grows = network(tmp_path, f"parallel.precision={precision}", "growth.count=4", "growth.until=4")
    for _ in range(2):  # from 1 to 2, and from 2 to 4 with trained pseudo-heads
        stepped(grows, 3)
        numbers = [spec.per_token for spec in grows.model.config.layers]
        before = float(gradient(grows.objective, BATCH, BATCH.num_targets, 1, 4)[0])
        grows.optimiser.zero_grad()
        assert len(grows.grow_where_asked(BATCH, BATCH.num_targets)) == 4
        assert [spec.per_token for spec in grows.model.config.layers] == [(2 * q, 2 * k) for q, k in numbers[:2]] + [
            (1, 1)
        ]
        after = stepped(grows)
        assert after == pytest.approx(before, rel=tolerance)
    assert stepped(grows, 5) < after  # and it learns on
    assert grows.config.use_cache
    assert grows.flops > network(tmp_path).flops


def test_what_was_there_is_updated_as_if_nothing_had_grown(tmp_path) -> None:
    """Weights that no growth touches get the same update, with the same moments."""
    plain, grows = network(tmp_path, "optimiser.clip=null"), network(tmp_path, "optimiser.clip=null")
    for one in (plain, grows):
        stepped(one, 3)
    grows.grow({0: (2, 2), 1: (1, 1)})
    for one in (plain, grows):
        stepped(one)
    old = dict(plain.model.named_parameters())
    for name, parameter in grows.model.named_parameters():
        if ".0.self_attn." not in name:
            torch.testing.assert_close(parameter, old[name], rtol=1e-4, atol=1e-5)


def test_random_numbers_of_a_step_do_not_depend_on_growth(tmp_path) -> None:
    grows = network(tmp_path, "model.config.attention_dropout=0.3")
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    assert grows.grow_where_asked(BATCH, BATCH.num_targets)
    assert torch.equal(torch.rand(3), expected)


def test_a_checkpoint_is_loaded_into_what_it_was_grown_to(tmp_path) -> None:
    grows, fresh = network(tmp_path), network(tmp_path)
    stepped(grows, 2)
    grows.grow({0: (2, 1), 1: (2, 2)})
    stepped(grows)
    state = {"layer_schedule": grows.model.config.layer_schedule}
    live = fresh.tensors_of(state)
    assert {name: t.shape for name, t in live.items()} == {name: t.shape for name, t in grows.tensors().items()}
    for name, tensor in live.items():
        tensor.copy_(grows.tensors()[name])  # as a checkpoint is loaded: in place
    training_state.restore_steps(fresh.optimiser, live)
    assert stepped(fresh, 2) == stepped(grows, 2)
    assert network(tmp_path).tensors_of({}).keys() == live.keys()  # of a run before there was growth


def test_what_is_frozen_stays_frozen(tmp_path) -> None:
    grows = network(tmp_path, "optimiser.train=mixing")
    stepped(grows)
    grows.grow({0: (2, 2), 1: (1, 2)})
    assert {name.rpartition(".")[2] for name, p in grows.model.named_parameters() if p.requires_grad} == {
        "alpha_q", "alpha_k", "alpha_v", "collapse"
    }  # fmt: skip
    frozen = grows.model.model.embed_tokens.weight.clone()
    first = stepped(grows)
    assert stepped(grows, 3) < first
    assert torch.equal(grows.model.model.embed_tokens.weight, frozen)
