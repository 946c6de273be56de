import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from iha.ops.visibility import Visibility, visible_tile

rules = st.builds(
    Visibility,
    causal=st.sampled_from(["virtual", "token", None]),
    window=st.none() | st.integers(1, 9),
    num_pseudo_heads=st.integers(1, 4),
)


@given(rules, st.integers(1, 8))
def test_reach_is_exactly_as_far_as_the_rule_looks(rule, tokens):
    """A tile must hold every token that is seen, and should hold no more."""
    P = rule.num_pseudo_heads
    index = torch.arange(tokens * P)
    seen = rule(index[:, None], index[None, :]).unflatten(0, (tokens, P)).unflatten(2, (tokens, P)).any(1).any(-1)
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]  # query token - key token
    back, ahead = distance[seen].max().item(), (-distance[seen]).max().item()
    longest = tokens - 1
    assert back == (longest if rule.reach_back is None else min(longest, rule.reach_back))
    assert ahead == (longest if rule.reach_ahead is None else min(longest, rule.reach_ahead))


@given(rules, st.integers(1, 12))
def test_clipping_drops_only_windows_that_never_bind(rule, tokens):
    index = torch.arange(tokens * rule.num_pseudo_heads)
    clipped = rule.clipped(tokens)
    assert torch.equal(rule(index[:, None], index), clipped(index[:, None], index))
    assert clipped.window is None or clipped.window < tokens


def test_a_padded_token_sees_itself_and_no_row_is_empty():
    real = torch.tensor([[True, False, True, True]])
    tile = visible_tile(Visibility("token", None, 2), (0, 4), (0, 4), real, None, torch.device("cpu"))[0]
    assert tile.any(-1).all()
    assert torch.equal(tile[2:4], torch.eye(8, dtype=torch.bool)[2:4])
    others = torch.tensor([0, 1, 4, 5, 6, 7])
    assert not tile[others][:, 2:4].any()


@pytest.mark.parametrize("queries", [(0, 6), (2, 5)])
def test_a_tile_is_a_piece_of_the_whole_mask(queries):
    rule, documents = Visibility("virtual", 3, 2), torch.tensor([[0, 0, 1, 1, 1, 2], [5, 5, 5, 5, 6, 6]])
    real = torch.tensor([[True] * 6, [False, True, True, True, False, True]])
    whole = visible_tile(rule, (0, 6), (0, 6), real, documents, torch.device("cpu"))
    tile = visible_tile(rule, queries, (1, 5), real, documents, torch.device("cpu"))
    assert torch.equal(tile, whole[:, 2 * queries[0] : 2 * queries[1], 2:10])
