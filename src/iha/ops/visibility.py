"""Which virtual keys a virtual query sees: one rule, shared by every backend.

Virtual index i = n*P + p from 0, for token n and pseudo-head p; plain attention is the case P = 1. A token may have
P_q pseudo-queries and another number P_k of pseudo-keys. Then virtual queries and virtual keys are counted apart, and
only their tokens can be compared.
"""

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

Causality = Literal["virtual", "token"] | None


@dataclass(frozen=True)
class Visibility:
    """Causality and window: the same for every sequence. `Masking` adds padding and documents."""

    causal: Causality = "virtual"
    window: int | None = None  # in tokens, including the query's own
    num_pseudo_heads: int = 1  # P; P_q where the keys have a number of their own
    num_pseudo_keys: int | None = None  # P_k; P when None

    @property
    def per_token(self) -> tuple[int, int]:
        """P_q and P_k: how many virtual queries and how many virtual keys a token has."""
        P = self.num_pseudo_heads
        return P, P if self.num_pseudo_keys is None else self.num_pseudo_keys

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        """Elementwise: does virtual query i see virtual key j?  Also the body of flex_attention's `mask_mod`."""
        (P, P_k), W = self.per_token, self.window
        if self.causal == "virtual":
            return (j <= i) if W is None else (j <= i) & (i - j < W * P)
        token_i, token_j = i // P, j // P_k
        if self.causal == "token":
            return (token_j <= token_i) if W is None else (token_j <= token_i) & (token_i - token_j < W)
        return (i == i) & (j == j) if W is None else (token_i - token_j < W) & (token_j - token_i < W)

    def key_range(self, i: Tensor, num_keys: int) -> tuple[Tensor, Tensor]:
        """The same rule as a range: virtual query i sees the virtual keys [first, last) of a sequence of num_keys."""
        (P, P_k), W = self.per_token, self.window
        if self.causal == "virtual":
            first, last = i - (num_keys if W is None else W * P) + 1, i + 1
        else:
            token = i // P
            first = (token - (num_keys if W is None else W - 1)) * P_k
            ahead = 1 if self.causal == "token" else num_keys if W is None else W
            last = (token + ahead) * P_k
        return first.clamp(min=0), last.clamp(max=num_keys)

    @property
    def queries_are_heads(self) -> bool:
        """Whether the pseudo-queries may be heads of their own: they see the same keys, and these are whole tokens."""
        return self.per_token[0] > 1 and self.per_token[1] == 1

    def of_heads(self) -> "Visibility":
        """The rule of these heads (`queries_are_heads`): one query and one key per token."""
        return replace(self, num_pseudo_heads=1, num_pseudo_keys=None)

    def is_own(self, i: Tensor, j: Tensor) -> Tensor:
        """Elementwise: is j the key of virtual query i itself, or one of its token's keys if the numbers differ?"""
        P, P_k = self.per_token
        return i == j if P_k == P else i // P == j // P_k

    @property
    def reach_back(self) -> int | None:
        """How many tokens before its own a query may see; None if unlimited."""
        if self.window is None:
            return None
        # Under virtual causality the window slides by pseudo-heads: (n, p) still sees (n - W, p') for p' > p.
        return self.window if self.causal == "virtual" and self.num_pseudo_heads > 1 else self.window - 1

    @property
    def reach_ahead(self) -> int | None:
        """How many tokens after its own a query may see; None if unlimited."""
        if self.causal is not None:
            return 0
        return None if self.window is None else self.window - 1

    def clipped(self, tokens: int) -> "Visibility":
        """The same rule for sequences of this many tokens: a window at least as long as the sequence is dropped."""
        binds = self.window is not None and self.window < tokens
        return self if binds else replace(self, window=None)
