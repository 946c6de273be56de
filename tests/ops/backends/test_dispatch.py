"""Which backend "auto" chooses."""

import pytest
import torch

from iha.ops.backends.case import Case
from iha.ops.backends.dispatch import choose_backend
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility


def case(device: str = "cpu", masked=False, rule=None, tokens=(9, 9), dtype=torch.bfloat16, **others) -> Case:
    q = torch.empty(1, 1, 1, 64, device="meta")
    made = Case.of(q, q, q, Masking(rule or Visibility("virtual", None, 2)), tokens)
    return Case(made.visibility, *tokens, 64, masked, False, dtype, torch.device(device), **others)


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (case(), "sdpa"),
        (case(masked=True), "sdpa"),
        (case(rule=Visibility("virtual", 4, 2)), "banded"),
        (case(rule=Visibility("virtual", 9, 2)), "sdpa"),  # a window that never binds
        (case("cuda"), "sdpa"),
        (case("cuda", masked=True), "flash"),
        (case("cuda", masked=True, compiling=True), "flex"),  # bounds are data, a compiled graph would break there
        (case("cuda", masked=True, dtype=torch.float32), "flex"),
        (case("cuda", rule=Visibility("virtual", 4, 2)), "flash"),
        (case("cuda", rule=Visibility("virtual", 4, 2), compiling=True), "flash"),
        (case("cuda", tokens=(3, 9)), "flash"),  # a chunk after a cache: causality is aligned at the end
        (case("cuda", rule=Visibility("token", None, 2)), "flex"),
        (case("cuda", rule=Visibility(None, 4, 2)), "flex"),
    ],
)
def test_auto_chooses(given, chosen):
    assert choose_backend(given, "auto") == chosen
