"""Appending in place is `torch.cat` to everybody who looks."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from iha.layers.growth import Room, extended, kept


def tokens(count: int, start: float = 0) -> torch.Tensor:
    """(2, 3, count, 4)"""
    return (torch.arange(2 * 3 * count * 4.0) + 1000 * start).view(2, 3, count, 4)


@torch.no_grad()
def test_one_token_more_is_written_behind_the_others() -> None:
    held, room = extended(tokens(5), tokens(1, 1), None)
    where = held.data_ptr()
    grown, again = extended(held, tokens(1, 2), room)
    assert again is room
    assert grown.data_ptr() == where
    torch.testing.assert_close(grown, torch.cat((tokens(5), tokens(1, 1), tokens(1, 2)), dim=2))
    torch.testing.assert_close(held, torch.cat((tokens(5), tokens(1, 1)), dim=2))
    assert grown.transpose(1, 2).flatten(2).data_ptr() == where  # token after token: heads side by side, no copy


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["end", "older", "cropped", "last"])), max_size=14))
@torch.no_grad()
def test_whatever_is_continued_and_however_often(steps: list[tuple[int, str]]) -> None:
    """Every tensor ever returned keeps its numbers, whichever of them is continued next."""
    first = tokens(3)
    found: list[tuple[torch.Tensor, Room | None]] = [(first, None)]
    wanted = [first.clone()]
    for n, (which, how) in enumerate(steps):
        index = -1 if how != "older" else which % len(found)
        (held, room), old = found[index], wanted[index]
        if how == "cropped":
            held, old = held[:, :, : max(1, held.shape[2] - which)], old[:, :, : max(1, old.shape[2] - which)]
        if how == "last":
            count = max(1, held.shape[2] - which)
            held, old = kept(held, count, room), old[:, :, old.shape[2] - count :]
        new = tokens(1 + which % 3, n + 1)
        found.append(extended(held, new, room))
        wanted.append(torch.cat((old, new), dim=2))
    for (got, _), want in zip(found, wanted, strict=True):
        assert torch.equal(got, want)


def test_after_inference_mode() -> None:
    with torch.inference_mode():
        held, room = extended(tokens(3), tokens(1, 1), None)
        held, room = extended(held, tokens(1, 2), room)
    with torch.no_grad():
        held, room = extended(held, tokens(1, 3), room)
        held, room = extended(held, tokens(1, 4), room)
    torch.testing.assert_close(held, torch.cat((tokens(3), *(tokens(1, n) for n in (1, 2, 3, 4))), dim=2))


def test_with_gradients_it_is_cat() -> None:
    parts = [tokens(2, n).requires_grad_() for n in range(3)]
    held, room = extended(parts[0], parts[1], None)
    kept_for_backward = (held * held).sum()
    held, room = extended(held, parts[2], room)
    (kept_for_backward + held.sum()).backward()
    assert room is None
    torch.testing.assert_close(parts[0].grad, 2 * parts[0].detach() + 1)
    torch.testing.assert_close(parts[2].grad, torch.ones_like(parts[2]))


@torch.no_grad()
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_go_on_apart(copied: object) -> None:
    one = dict(zip(("held", "room"), extended(tokens(3), tokens(1, 1), None), strict=True))
    other = copied(one)
    first, _ = extended(one["held"], tokens(1, 2), one["room"])
    second, _ = extended(other["held"], tokens(1, 3), other["room"])
    common = torch.cat((tokens(3), tokens(1, 1)), dim=2)
    torch.testing.assert_close(first, torch.cat((common, tokens(1, 2)), dim=2))
    torch.testing.assert_close(second, torch.cat((common, tokens(1, 3)), dim=2))


@torch.no_grad()
def test_another_dtype_or_batch_is_left_to_cat() -> None:
    held, room = extended(tokens(3), tokens(1, 1), None)
    wider, _ = extended(held, tokens(1, 2).double(), room)
    assert wider.dtype == torch.float64
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        extended(held, tokens(1)[:1], room)


@torch.no_grad()
def test_what_is_dropped_is_not_kept_alive() -> None:
    large = tokens(10_000)
    part = kept(large, 4, None)
    assert part.untyped_storage().nbytes() < large.untyped_storage().nbytes() // 100
    held, room = part, None
    for n in range(600):
        held, room = extended(held, tokens(1, n), room)
        held = kept(held, 4, room)
    assert held.untyped_storage().nbytes() < 200 * 3 * 4 * 4 * 2
    torch.testing.assert_close(held, torch.cat([tokens(1, n) for n in range(596, 600)], dim=2))
