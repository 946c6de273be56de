"""The heads of `transformers`: they learn, pool at the last real token, and the Auto classes find them."""

from pathlib import Path

import pytest
import torch
from tiny import assert_learns, tiny_config, tokens
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from iha.models import IHAForQuestionAnswering, IHAForSequenceClassification, IHAForTokenClassification

CASES = [
    (IHAForSequenceClassification, AutoModelForSequenceClassification, {"labels": torch.tensor([0, 2])}),
    (IHAForTokenClassification, AutoModelForTokenClassification, {"labels": torch.tensor([[0, 1, 2, 0, 1]] * 2)}),
    (
        IHAForQuestionAnswering,
        AutoModelForQuestionAnswering,
        {"start_positions": torch.tensor([0, 1]), "end_positions": torch.tensor([2, 3])},
    ),
]


@pytest.mark.parametrize(("head", "auto", "answers"), CASES)
def test_trains_saves_and_is_found(head: type, auto: type, answers: dict[str, torch.Tensor], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = head(tiny_config(num_labels=3)), tokens(2, 5)
    assert_learns(model, x, **answers)
    model.eval().save_pretrained(tmp_path)
    loaded = auto.from_pretrained(tmp_path)
    assert type(loaded) is head
    torch.testing.assert_close(loaded(x)[0], model(x)[0])


def test_a_reward_is_read_at_the_last_real_token() -> None:
    model = IHAForSequenceClassification(tiny_config(num_labels=1)).eval()
    x = tokens(1, 5)
    padded = torch.cat((x, torch.zeros(1, 3, dtype=torch.long)), dim=1)
    mask = (torch.arange(8) < 5).long()[None]
    torch.testing.assert_close(model(padded, attention_mask=mask).logits, model(x).logits, rtol=0, atol=2e-5)
