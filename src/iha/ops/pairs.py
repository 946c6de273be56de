"""How many (query, key) pairs a visibility rule lets through, in exact integers: the unit of attention's cost.

Under every rule a virtual query sees an interval of virtual keys, so two bounds say all: they give the pairs that
are needed, the tiles that a kernel touches, and what a cache must keep.
"""

from fractions import Fraction
from typing import Literal, get_args

from iha.ops.visibility import Visibility

Convention = Literal["paper", "causal", "exact"]
CONVENTIONS: tuple[str, ...] = get_args(Convention)


def bounds(rule: Visibility, i: int) -> tuple[int, int | None]:
    """The first virtual key that virtual query i sees, and the one after the last; None: to the end."""
    P, W = rule.num_pseudo_heads, rule.window
    n = i // P
    if rule.causal == "virtual":
        return (0 if W is None else max(0, i - W * P + 1)), i + 1
    first = 0 if W is None else max(0, n - W + 1) * P
    if rule.causal == "token":
        return first, (n + 1) * P
    return first, None if W is None else (n + W) * P


def seen_by(rule: Visibility, i: int, num_tokens: int) -> int:
    """How many virtual keys of N tokens virtual query i sees."""
    first, last = bounds(rule, i)
    M = num_tokens * rule.num_pseudo_heads
    return (M if last is None else min(M, last)) - first


def visible(rule: Visibility, num_tokens: int, order: int = 1) -> int:
    """Σ over virtual queries of c^order, c being how many virtual keys the query sees.

    Order 1 counts the pairs of ordinary attention; order 2 the triples of attention to pairs of keys.
    """
    rule = _checked(rule, num_tokens)
    N, P, W = num_tokens, rule.num_pseudo_heads, rule.window
    if rule.causal == "virtual":
        return _staircase(N * P, N * P if W is None else W * P, order)
    if rule.causal == "token":  # the P virtual queries of a token see the same whole tokens
        return _staircase(N, N if W is None else W, order) * P ** (1 + order)
    if W is None:
        return (N * P) ** (1 + order)
    seen = (min(n, W - 1) + 1 + min(N - 1 - n, W - 1) for n in range(N))  # behind, itself, ahead
    return sum(c**order for c in seen) * P ** (1 + order)


def counted(rule: Visibility, num_tokens: int, order: int = 1, convention: str = "exact") -> Fraction:
    """The same sum, as someone would estimate it.

    - "paper" (appendix C): a global layer counts in full, N² pairs, as if nothing were masked; a window counts N·W.
    - "causal": a causal global layer counts half, N²/2; a window still N·W, its corner at the start not cut off. What
      FLOP matching means if both sides are counted alike (E11).
    - "exact": `visible`, every pair that the mask lets through and no other.
    """
    if convention not in CONVENTIONS:
        raise ValueError(f"convention must be one of {CONVENTIONS}, got {convention!r}")
    if convention == "exact":
        return Fraction(visible(rule, num_tokens, order))
    rule = _checked(rule, num_tokens)
    N, P, W = num_tokens, rule.num_pseudo_heads, rule.window
    full = Fraction((N * P) ** (1 + order))
    if rule.causal is None:
        return full if W is None else Fraction(N * P * (min(2 * W - 1, N) * P) ** order)
    everything = full if convention == "paper" else full / (1 + order)
    return everything if W is None else min(everything, Fraction(N * P * (W * P) ** order))


def touched(rule: Visibility, num_tokens: int, tile: tuple[int, int] = (128, 128)) -> int:
    """The pairs in all tiles (virtual queries x virtual keys) that hold a visible one: what a flash kernel executes.

    The defaults are the usual order of size on GPUs; a kernel chooses its own by head width and hardware.
    """
    rule = _checked(rule, num_tokens)
    rows, keys = tile
    if rows < 1 or keys < 1:
        raise ValueError(f"a tile must hold at least one query and one key, got {tile}")
    M = num_tokens * rule.num_pseudo_heads
    total = 0
    for start in range(0, M, rows):
        stop = min(start + rows, M)
        first, (_, last) = bounds(rule, start)[0], bounds(rule, stop - 1)
        last = M if last is None else min(M, last)
        total += (stop - start) * (min(M, -(-last // keys) * keys) - first // keys * keys)
    return total


def kept(rule: Visibility, num_tokens: int) -> tuple[int, int]:
    """(tokens, virtual keys) among the N seen that the next token can still look at: what a cache must keep."""
    if num_tokens < 1:
        raise ValueError(f"num_tokens must be at least 1, got {num_tokens}")
    P = rule.num_pseudo_heads
    first, _ = bounds(rule, num_tokens * P)  # of the next token's first pseudo-query
    return num_tokens - first // P, num_tokens * P - first


def _staircase(rows: int, reach: int, order: int) -> int:
    """Σ over rows i = 1, 2, … of min(i, reach)^order: steps up to the reach, then level."""
    reach = min(rows, reach)
    steps = reach * (reach + 1) // 2 if order == 1 else reach * (reach + 1) * (2 * reach + 1) // 6
    return steps + (rows - reach) * reach**order


def _checked(rule: Visibility, num_tokens: int) -> Visibility:
    if num_tokens < 1:
        raise ValueError(f"num_tokens must be at least 1, got {num_tokens}")
    return rule.clipped(num_tokens)
