"""What an attention layer costs, stated by the layer itself: parameters, FLOPs and cache bytes, by formula.

FLOPs are those of matrix products; a multiply-add counts as two. Softmax, norms, RoPE and elementwise products are not
counted, as in `torch.utils.flop_counter`. A backward pass costs twice the forward. That of a flash kernel costs 2.5
times the forward, because it computes the scores again.
"""

from dataclasses import dataclass
from fractions import Fraction

from iha.ops.backends import flash
from iha.ops.output import Gate
from iha.ops.pairs import counted, kept, touched
from iha.ops.visibility import Causality, Visibility


@dataclass(frozen=True)
class Parameters:
    projections: int
    mixing: int  # whatever the mechanism adds to the projections

    @property
    def total(self) -> int:
        return self.projections + self.mixing

    def __add__(self, other: "Parameters") -> "Parameters":
        return Parameters(self.projections + other.projections, self.mixing + other.mixing)


@dataclass(frozen=True)
class Flops:
    projections: int  # the q, k, v and output projections, and that of a gate
    mixing: int  # what the mechanism adds: alpha and R, mixed logits, convolutions, …
    attention: int  # scores, and weighted sums of values

    @property
    def total(self) -> int:
        return self.projections + self.mixing + self.attention

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.projections + other.projections, self.mixing + other.mixing, self.attention + other.attention)

    def __mul__(self, times: int) -> "Flops":
        return Flops(self.projections * times, self.mixing * times, self.attention * times)


@dataclass(frozen=True)
class UnitCosts:
    """FLOPs of all heads per token, per visible (query, key) pair and per visible (query, key, key) triple."""

    attention_per_pair: int
    patterns_per_head: int  # attention maps that one head's output combines
    kernel_per_pair: int | None = None  # attention_per_pair of a flash kernel, where that is more
    attention_per_triple: int = 0
    attention_per_key_pair: int = 0  # per (key, key), for all queries together
    mixing_per_token: int = 0
    mixing_per_pair: int = 0


class StatesItsCosts:
    """The part of `SelfAttention` that states what a layer costs. `accounting` adds it up over a schedule.

    All numbers are for one forward pass over one sequence of N tokens.
    """

    embed_dim: int  # E
    num_heads: int  # H
    num_kv_heads: int  # G
    num_mixed_heads: int  # H', the heads that attend
    num_mixed_kv_heads: int  # G'
    head_dim: int  # D
    causal: Causality
    has_bias: bool  # of the projections to q, k and v
    has_out_bias: bool
    has_qk_norm: bool
    gate: Gate | None  # on the output
    key_value_sets: int = 1  # 2 where a query attends to pairs of tokens
    cache_obstacle: str | None = None  # why the mechanism has no cache, or None
    kernel_obstacle: str | None = None  # why no attention kernel computes it, or None

    @property
    def visibility(self) -> Visibility:
        raise NotImplementedError

    @property
    def kernel_width(self) -> int:
        """The head width that an attention kernel sees."""
        return self.head_dim

    @property
    def gate_features(self) -> int:
        """Outputs of the gate's projection."""
        return 0 if self.gate is None else self.num_heads * (1 if self.gate == "headwise" else self.head_dim)

    def num_mixing_parameters(self) -> int:
        """By formula: what the mechanism adds to the projections."""
        return 0

    def num_parameters(self) -> Parameters:
        E, queries, keys = self.embed_dim, self.num_heads * self.head_dim, self._key_features
        gates = self.gate_features
        biases = (queries + 2 * keys + gates) * self.has_bias + E * self.has_out_bias
        norms = 2 * self.head_dim * self.has_qk_norm
        return Parameters(E * (2 * queries + 2 * keys + gates) + biases + norms, self.num_mixing_parameters())

    def unit_costs(self) -> UnitCosts:
        """Multi-head attention: per head, a dot product of width D with the key and D multiply-adds of the value."""
        return UnitCosts(attention_per_pair=4 * self.head_dim * self.num_mixed_heads, patterns_per_head=1)

    def flops(self, num_tokens: int, convention: str = "exact") -> Flops:
        """FLOPs over the pairs that the mask lets through, counted by this convention (`pairs.counted`)."""
        unit, rule = self.unit_costs(), self.visibility
        pairs = counted(rule, num_tokens, 1, convention)
        attention = unit.attention_per_pair * pairs
        if unit.attention_per_triple:
            attention += unit.attention_per_triple * self.triples(num_tokens, convention)
        if unit.attention_per_key_pair:
            attention += unit.attention_per_key_pair * _key_pairs(rule, num_tokens, convention)
        mixing = unit.mixing_per_token * num_tokens + unit.mixing_per_pair * pairs
        return Flops(self._projection_flops * num_tokens, round(mixing), round(attention))

    def triples(self, num_tokens: int, convention: str) -> Fraction:
        """Visible (query, key, key) triples, for mechanisms that attend to pairs of tokens."""
        return counted(self.visibility, num_tokens, 2, convention)

    def kernel_flops(self, num_tokens: int, tile: tuple[int, int] = (128, 128)) -> Flops | None:
        """FLOPs that a flash kernel executes: whole tiles, at supported widths; None if no such kernel exists."""
        if self.flash_obstacle() is not None:
            return None
        unit, rule = self.unit_costs(), self.visibility
        per_pair = unit.kernel_per_pair or unit.attention_per_pair
        if rule.queries_are_heads:
            per_pair, rule = per_pair * rule.num_pseudo_heads, rule.of_heads()
        attention = per_pair * touched(rule, num_tokens, tile)
        return Flops(self._projection_flops * num_tokens, unit.mixing_per_token * num_tokens, attention)

    def flash_obstacle(self) -> str | None:
        """Why no flash kernel computes this layer, or None."""
        rule = self.visibility
        rule = rule.of_heads() if rule.queries_are_heads else rule
        return self.kernel_obstacle or flash.shape_obstacle(rule, self.kernel_width)

    def cache_bytes(self, num_tokens: int, element_size: int = 2, *, pseudo_heads: bool = False) -> int | None:
        """Size of the keys and values cached after N tokens; None if the layer cannot have a cache.

        `pseudo_heads`: the size if pseudo-heads were cached instead of heads, as Algorithm 1 taken literally would do.
        """
        tokens, virtual_keys = kept(self.visibility, num_tokens)
        if self.causal is None or self.cache_obstacle is not None:
            return None
        if pseudo_heads:
            mixed_features = self._key_features // self.num_kv_heads * self.num_mixed_kv_heads
            return 2 * virtual_keys * mixed_features * element_size
        return 2 * tokens * self._key_features * element_size

    @property
    def _key_features(self) -> int:
        return self.num_kv_heads * self.head_dim * self.key_value_sets

    @property
    def _projection_flops(self) -> int:
        """Per token. Biases are only additions and are not counted."""
        features = self.num_heads * self.head_dim + self._key_features
        return 2 * self.embed_dim * (2 * features + self.gate_features)


def _key_pairs(rule: Visibility, num_tokens: int, convention: str) -> Fraction:
    """(key, key) pairs that one query can see together: all pairs, or those that fit into one window."""
    W = rule.clipped(num_tokens).window
    width = None if W is None else W if rule.causal is not None else 2 * W - 1
    return counted(Visibility(None, width), num_tokens, 1, convention)
