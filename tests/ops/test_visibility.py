"""The visibility rule: how far it reaches, and when a window binds."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from iha.ops.visibility import Visibility

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
