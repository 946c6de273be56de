"""The visibility rule: how far it reaches, and when a window binds."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from iha.ops.visibility import Visibility

numbers = {"window": st.none() | st.integers(1, 9), "num_pseudo_heads": st.integers(1, 4)}
rules = st.builds(Visibility, causal=st.sampled_from(["virtual", "token", None]), **numbers) | st.builds(
    Visibility, causal=st.sampled_from(["token", None]), num_pseudo_keys=st.integers(1, 4), **numbers
)


@given(rules, st.integers(1, 8))
def test_reach_is_exactly_as_far_as_the_rule_looks(rule, tokens):
    """A tile must hold every token that is seen, and should hold no more."""
    P, P_k = rule.per_token
    i, j = torch.arange(tokens * P), torch.arange(tokens * P_k)
    seen = rule(i[:, None], j[None, :]).unflatten(0, (tokens, P)).unflatten(2, (tokens, P_k)).any(1).any(-1)
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]  # query token - key token
    back, ahead = distance[seen].max().item(), (-distance[seen]).max().item()
    longest = tokens - 1
    assert back == (longest if rule.reach_back is None else min(longest, rule.reach_back))
    assert ahead == (longest if rule.reach_ahead is None else min(longest, rule.reach_ahead))


@given(rules, st.integers(1, 12))
def test_clipping_drops_only_windows_that_never_bind(rule, tokens):
    i, j = (torch.arange(tokens * P) for P in rule.per_token)
    clipped = rule.clipped(tokens)
    assert torch.equal(rule(i[:, None], j), clipped(i[:, None], j))
    assert clipped.window is None or clipped.window < tokens
    assert clipped.per_token == rule.per_token


@given(rules, st.integers(1, 8))
def test_pseudo_queries_that_are_heads_see_what_heads_see(rule, tokens):
    P, P_k = rule.per_token
    assert rule.queries_are_heads == (P > 1 and P_k == 1)
    if rule.queries_are_heads:
        i, n = torch.arange(tokens * P), torch.arange(tokens)
        assert torch.equal(rule(i[:, None], n), rule.of_heads()(n[:, None], n).repeat_interleave(P, dim=0))


@given(rules, st.integers(1, 12))
def test_the_range_of_a_query_is_what_it_sees(rule, tokens):
    i, j = (torch.arange(tokens * P) for P in rule.per_token)
    first, last = rule.key_range(i, len(j))
    assert torch.equal(rule(i[:, None], j), (first[:, None] <= j) & (j < last[:, None]))
