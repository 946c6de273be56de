"""Which backend "auto" chooses."""

import pytest
import torch

from iha.ops.backends.case import Case
from iha.ops.backends.dispatch import choose_backend
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility


def case(device: str = "cpu", masked: bool = False, rule: Visibility | None = None, tokens=(9, 9)) -> Case:
    q = torch.empty(1, 1, 1, 64, device="meta")
    made = Case.of(q, q, q, Masking(rule or Visibility("virtual", None, 2)), tokens)
    return Case(made.visibility, *tokens, 64, masked, False, torch.float32, torch.device(device))


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (case(), "sdpa"),
        (case(masked=True), "sdpa"),
        (case(rule=Visibility("virtual", 4, 2)), "banded"),
        (case(rule=Visibility("virtual", 9, 2)), "sdpa"),  # a window that never binds
        (case("cuda"), "sdpa"),
        (case("cuda", masked=True), "flex"),
        (case("cuda", rule=Visibility("token", None, 2)), "flex"),
        (case("cuda", rule=Visibility("virtual", 4, 2)), "flex"),
    ],
)
def test_auto_chooses(given, chosen):
    assert choose_backend(given, "auto") == chosen
