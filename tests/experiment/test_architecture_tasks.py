"""The tasks: their data are what they say, their parts do not overlap, their models take them."""

import random
from datetime import date, timedelta

import pytest
import torch

from iha.experiment.architecture_tasks import MECHANISMS, TASKS, Dates, Digits, MaskedText, question
from iha.layers.cross import CROSS_MECHANISMS
from iha.layers.interleaved import InterleavedHeadAttention

every_task = pytest.mark.parametrize("name", TASKS)


@every_task
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_models_take_the_batches_and_have_the_mechanism(name: str, mechanism: str) -> None:
    task = TASKS[name]
    model, batch = task.model(mechanism, 16), next(task.batches(0))
    assert model(**batch).loss.isfinite()
    interleaved = any(isinstance(module, InterleavedHeadAttention) for module in model.modules())
    assert interleaved is (mechanism == "iha")
    if name == "dates":
        assert type(model.model.decoder.layers[0].cross_attn) is CROSS_MECHANISMS[mechanism]
    with pytest.raises(ValueError, match="got 'strassen'"):
        task.model("strassen", 16)


@every_task
def test_batches_are_a_function_of_the_seed_and_parts_of_nothing(name: str) -> None:
    task = TASKS[name]
    first, again, other = (next(task.batches(seed)) for seed in (0, 0, 1))
    key = next(iter(first))
    assert torch.equal(first[key], again[key])
    assert first[key].shape != other[key].shape or not torch.equal(first[key], other[key])
    held_out = [task.held_out(part) for part in ("validation", "test")]
    assert torch.equal(held_out[0][key], task.held_out("validation")[key])
    assert held_out[0][key].shape != held_out[1][key].shape or not torch.equal(held_out[0][key], held_out[1][key])


def test_masked_bytes_are_the_labels() -> None:
    task = TASKS["masked-text"]
    assert isinstance(task, MaskedText)
    batch = task.held_out("test")
    masked = batch["input_ids"] == task.mask
    assert torch.equal(masked, batch["labels"] != -100)
    assert 0.13 < masked.float().mean() < 0.17
    assert batch["labels"].max() < 256
    sizes = {part: len(text) for part, text in task.text.items()}
    assert sizes["train"] > 4 * sizes["test"] > 0


def test_the_answer_is_so_many_days_later() -> None:
    rng = random.Random(0)
    for _ in range(50):
        asked, answer = question(rng)
        day, month, year, _, days, _ = asked.split()
        first = next(
            d for d in (date(int(year), m, int(day)) for m in months_with(int(day), int(year))) if f"{d:%B}" == month
        )
        assert answer == (first + timedelta(int(days))).isoformat()


def months_with(day: int, year: int) -> list[int]:
    lengths = [(date(year + m // 12, m % 12 + 1, 1) - date(year, m, 1)).days for m in range(1, 13)]
    return [month for month, length in enumerate(lengths, start=1) if day <= length]


def test_dates_are_letters_with_padding_on_the_right() -> None:
    task = TASKS["dates"]
    assert isinstance(task, Dates)
    batch = next(task.batches(3))
    row, mask, label = (batch[name][0] for name in ("input_ids", "attention_mask", "labels"))
    text = bytes(row[mask.bool()].tolist()).decode()
    assert text.endswith(" days")
    assert row[~mask.bool()].sum() == 0
    assert label[-1] == task.end
    assert date.fromisoformat(bytes(label[:-1].tolist()).decode())


def test_whole_answers_count() -> None:
    """A model that gives the right answers has accuracy 1, one wrong letter makes an answer wrong."""
    task = TASKS["dates"]

    class Oracle(torch.nn.Module):
        def __init__(self, wrong: int) -> None:
            super().__init__()
            self.wrong = wrong

        def forward(self, **_: object) -> object:
            return type("Output", (), {"loss": torch.tensor(0.5)})

        def generate(self, **_: object) -> torch.Tensor:
            answers = task.held_out("test")["labels"].clone()
            answers[: self.wrong, 3] += 1
            return torch.cat((torch.ones(len(answers), 1, dtype=torch.long), answers), dim=1)

    assert task.scores(Oracle(0), "test") == {"loss": 0.5, "accuracy": 1.0}  # type: ignore[arg-type]
    assert task.scores(Oracle(100), "test")["accuracy"] == pytest.approx(0.9)  # type: ignore[arg-type]


def test_digits_are_each_in_one_part() -> None:
    task = TASKS["digits"]
    assert isinstance(task, Digits)
    assert [len(part["labels"]) for part in task.images.values()] == [1097, 200, 500]
    assert all(part["pixel_values"].abs().max() <= 1 for part in task.images.values())
    assert set(task.images["train"]["labels"].tolist()) == set(range(10))
