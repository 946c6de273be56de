"""A case by the simplest rule that means the same."""

import torch

from iha.ops.backends.case import Case, in_forward_mode, is_exporting
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility


def case(rule: Visibility, tokens: tuple[int, int]) -> Case:
    q = torch.empty(1, 1, 1, 64, device="meta")
    return Case.of(q, q, q, Masking(rule), tokens)


def test_the_newest_token_sees_everything_so_no_mask_is_needed():
    assert case(Visibility("token", None, 3), (1, 9)).is_plain
    assert case(Visibility("virtual", None, 1), (1, 9)).is_plain
    assert not case(Visibility("virtual", None, 3), (1, 9)).is_plain


def test_a_window_that_never_binds_is_none():
    assert case(Visibility("virtual", 9, 2), (9, 9)).visibility == Visibility("virtual", None, 2)
    assert case(Visibility("virtual", 8, 2), (9, 9)).visibility == Visibility("virtual", 8, 2)


def test_forward_mode_is_noticed():
    seen = []

    def function(x: torch.Tensor) -> torch.Tensor:
        seen.append((in_forward_mode(), is_exporting()))
        return 2 * x

    torch.func.jvp(function, (torch.ones(1),), (torch.ones(1),))
    torch.func.grad(lambda x: function(x).sum())(torch.ones(1))
    assert seen == [(True, False), (False, False)]
