"""How many (query, key) pairs are visible under a rule, in exact integers: the unit of attention's cost.

Under every rule a virtual query sees an interval of virtual keys, so two bounds describe it. The bounds give the number
of visible pairs, the tiles that a kernel computes, and the tokens that a cache must keep.
"""

from fractions import Fraction
from typing import Literal, get_args

from iha.ops.visibility import Visibility

Convention = Literal["paper", "causal", "exact"]
CONVENTIONS: tuple[str, ...] = get_args(Convention)


def bounds(rule: Visibility, i: int) -> tuple[int, int | None]:
    """The interval [first, end) of virtual keys that virtual query i sees; an end of None means all later keys."""
    (P_q, P), W = rule.per_token, rule.window
    n = i // P_q
    if rule.causal == "virtual":
        return (0 if W is None else max(0, i - W * P + 1)), i + 1
    first = 0 if W is None else max(0, n - W + 1) * P
    if rule.causal == "token":
        return first, (n + 1) * P
    return first, None if W is None else (n + W) * P


def seen_by(rule: Visibility, i: int, num_tokens: int) -> int:
    """How many virtual keys of N tokens virtual query i sees."""
    first, last = bounds(rule, i)
    M = num_tokens * rule.per_token[1]
    return (M if last is None else min(M, last)) - first


def visible(rule: Visibility, num_tokens: int, order: int = 1) -> int:
    """Σ over virtual queries of c^order, where c is the number of virtual keys that the query sees.

    Order 1 counts the pairs of ordinary attention; order 2 the triples of attention to pairs of keys.
    """
    rule = _checked(rule, num_tokens)
    N, (P_q, P_k), W = num_tokens, rule.per_token, rule.window
    if rule.causal == "virtual":
        return _staircase(N * P_q, N * P_k if W is None else W * P_k, order)
    if rule.causal == "token":  # the P_q virtual queries of a token see the same whole tokens
        return _staircase(N, N if W is None else W, order) * P_q * P_k**order
    if W is None:
        return N * P_q * (N * P_k) ** order
    seen = (min(n, W - 1) + 1 + min(N - 1 - n, W - 1) for n in range(N))  # tokens behind, own token, tokens ahead
    return sum(c**order for c in seen) * P_q * P_k**order


def counted(rule: Visibility, num_tokens: int, order: int = 1, convention: str = "exact") -> Fraction:
    """The sum of `visible`, under one of three counting conventions.

    - "paper" (appendix C): a global layer counts N² pairs, as if nothing were masked; a window counts N·W.
    - "causal": a causal global layer counts N²/2. A window still counts N·W, although the first W tokens see fewer
      keys. FLOP matching means this if both sides are to be counted in the same way (E11).
    - "exact": `visible`, exactly the pairs that the mask allows.
    """
    if convention not in CONVENTIONS:
        raise ValueError(f"convention must be one of {CONVENTIONS}, got {convention!r}")
    if convention == "exact":
        return Fraction(visible(rule, num_tokens, order))
    rule = _checked(rule, num_tokens)
    N, (P_q, P_k), W = num_tokens, rule.per_token, rule.window
    full = Fraction(N * P_q * (N * P_k) ** order)
    if rule.causal is None:
        return full if W is None else Fraction(N * P_q * (min(2 * W - 1, N) * P_k) ** order)
    everything = full if convention == "paper" else full / (1 + order)
    return everything if W is None else min(everything, Fraction(N * P_q * (W * P_k) ** order))


def touched(rule: Visibility, num_tokens: int, tile: tuple[int, int] = (128, 128)) -> int:
    """The pairs in all tiles (virtual queries x virtual keys) with a visible pair: what a flash kernel executes.

    The default tile size is typical of GPUs; a real kernel chooses it by head width and hardware.
    """
    rule = _checked(rule, num_tokens)
    rows, keys = tile
    if rows < 1 or keys < 1:
        raise ValueError(f"a tile must hold at least one query and one key, got {tile}")
    queries, M = (num_tokens * P for P in rule.per_token)
    total = 0
    for start in range(0, queries, rows):
        stop = min(start + rows, queries)
        first, (_, last) = bounds(rule, start)[0], bounds(rule, stop - 1)
        last = M if last is None else min(M, last)
        total += (stop - start) * (min(M, -(-last // keys) * keys) - first // keys * keys)
    return total


def kept(rule: Visibility, num_tokens: int) -> tuple[int, int]:
    """How many of the N past tokens, and of their virtual keys, the next token can see: what a cache must keep."""
    if num_tokens < 1:
        raise ValueError(f"num_tokens must be at least 1, got {num_tokens}")
    P_q, P = rule.per_token
    first, _ = bounds(rule, num_tokens * P_q)  # for the first pseudo-query of the next token
    return num_tokens - first // P, num_tokens * P - first


def _staircase(rows: int, reach: int, order: int) -> int:
    """Σ over i = 1 … rows of min(i, reach)^order: rising up to the reach, then constant."""
    reach = min(rows, reach)
    steps = reach * (reach + 1) // 2 if order == 1 else reach * (reach + 1) * (2 * reach + 1) // 6
    return steps + (rows - reach) * reach**order


def _checked(rule: Visibility, num_tokens: int) -> Visibility:
    if num_tokens < 1:
        raise ValueError(f"num_tokens must be at least 1, got {num_tokens}")
    return rule.clipped(num_tokens)
