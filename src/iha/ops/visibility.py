"""Which virtual keys a virtual query sees: one rule, shared by every backend.

Virtual index i = n*P + p from 0, for token n and pseudo-head p; plain attention is the case P = 1.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Causality = Literal["virtual", "token"] | None


@dataclass(frozen=True)
class Visibility:
    """Causality and window: the same for every sequence. `Masking` adds padding and documents."""

    causal: Causality = "virtual"
    window: int | None = None  # in tokens, including the query's own
    num_pseudo_heads: int = 1  # P

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        """Elementwise: does virtual query i see virtual key j?  Also the body of flex_attention's `mask_mod`."""
        P, W = self.num_pseudo_heads, self.window
        if self.causal == "virtual":
            return (j <= i) if W is None else (j <= i) & (i - j < W * P)
        token_i, token_j = i // P, j // P
        if self.causal == "token":
            return (token_j <= token_i) if W is None else (token_j <= token_i) & (token_i - token_j < W)
        return (i == i) & (j == j) if W is None else (token_i - token_j < W) & (token_j - token_i < W)

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
        return self if binds else Visibility(self.causal, None, self.num_pseudo_heads)
