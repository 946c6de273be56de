"""Held-out loss: the mean over the targets of each source, however the sequences are cut into batches."""

import pytest
import runs
import torch
import torch.nn.functional as F

from iha.train.batches import Corpus
from iha.train.build import build_model, model_config
from iha.train.objective import Objective
from iha.train.packing import IGNORED
from iha.train.parallel import Processes
from iha.train.prepare import prepare
from iha.train.validate import validation_losses


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    directory = tmp_path_factory.mktemp("validate")
    recipe = runs.tiny(directory, "parallel.precision=float64")
    tokenizer = prepare(recipe.data, directory / "d", seed=0)
    model = build_model(recipe, model_config(recipe, tokenizer.size, tokenizer.end_id))
    return Objective(model), Corpus(recipe.data, directory / "d", tokenizer, 0)


def by_definition(objective, corpus, name, sequences):
    """One sequence at a time, by the model's logits."""
    losses = []
    for number in range(min(sequences, len(corpus.sources["validation"][name]))):
        batch = corpus.validation_batch(name, [number])
        logits = objective.model(batch.tokens, document_ids=batch.documents, use_cache=False).logits[0]
        real = batch.labels[0] != IGNORED
        losses.append(F.cross_entropy(logits[real], batch.labels[0][real], reduction="none"))
    return torch.cat(losses).mean().item()


@pytest.mark.parametrize("micro_batch", [1, 2, 100])
@torch.no_grad()
def test_losses_are_means_over_targets(held_out, micro_batch):
    objective, corpus = held_out
    alone = Processes(0, 1, torch.device("cpu"))
    found = validation_losses(objective, corpus, alone, sequences=3, micro_batch=micro_batch)
    assert found.keys() == {"pairs", "hops"}
    for name, loss in found.items():
        assert loss == pytest.approx(by_definition(objective, corpus, name, 3), rel=1e-12)


@torch.no_grad()
def test_answers_alone_are_validated_by_their_own_logits(tmp_path):
    """Sources in which only answers count: few targets, and the same means."""
    recipe = runs.tiny(
        tmp_path, "parallel.precision=float64",
        "data.sources.0.answers_only=true", "data.sources.1.answers_only=true",
    )  # fmt: skip
    tokenizer = prepare(recipe.data, tmp_path / "d", seed=0)
    objective = Objective(build_model(recipe, model_config(recipe, tokenizer.size, tokenizer.end_id)))
    corpus = Corpus(recipe.data, tmp_path / "d", tokenizer, 0)
    assert all(corpus.validation_batch(name, [0, 1]).few_targets for name in ("pairs", "hops"))
    found = validation_losses(objective, corpus, Processes(0, 1, torch.device("cpu")), sequences=3, micro_batch=2)
    for name, loss in found.items():
        assert loss == pytest.approx(by_definition(objective, corpus, name, 3), rel=1e-12)


class Pretended(Processes):
    """One of several processes, whose sums are added up by the test."""

    def sum(self, *values):
        self.__dict__.setdefault("shares", []).append(values)
        return list(values)


@torch.no_grad()
def test_processes_share_the_sequences_and_a_process_without_one_adds_nothing(held_out):
    objective, corpus = held_out
    shares = []
    for rank in range(4):  # three sequences: the fourth process has none
        process = Pretended(rank, 4, torch.device("cpu"))
        validation_losses(objective, corpus, process, sequences=3, micro_batch=1)
        shares.append(process.shares)
    for index, name in enumerate(corpus.sources["validation"]):
        total, targets = (sum(share[index][which] for share in shares) for which in (0, 1))
        assert total / targets == pytest.approx(by_definition(objective, corpus, name, 3), rel=1e-12)
    assert all(share == (0.0, 0) for share in shares[3])


@torch.no_grad()
def test_a_source_with_nothing_held_out_is_left_out(held_out, monkeypatch):
    objective, corpus = held_out
    monkeypatch.setattr(corpus, "validation", lambda name, sequences: [0] if name == "hops" else [])
    found = validation_losses(objective, corpus, Processes(0, 1, torch.device("cpu")), sequences=3, micro_batch=2)
    assert found.keys() == {"hops"}
