"""2-simplicial attention (Clift et al. 2019, arXiv 1909.00668), in the form of Roy et al. 2025 (arXiv 2507.02754).

A query attends to pairs of tokens, with two sets of keys and values:

    A[i, j, k] = softmax over the visible pairs (j, k) of scale · Σ_d q[i, d] k1[j, d] k2[k, d]
    out[i]     = Σ_{j, k} A[i, j, k] (v1[j] ⊙ v2[k])

Causal: j ≤ i and k ≤ i. Windows w1 and w2 limit j and k. They are counted in tokens, including the query's own.

The fast form is flash attention for pairs of keys: blocks of queries against blocks of second keys, an online softmax,
and a backward pass that recomputes each block from the log-sum-exp. Of the N³ scores, one block is in memory at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from iha.ops import inputs
from iha.ops.backends import simplicial_fused
from iha.ops.backends.case import in_forward_mode
from iha.ops.masking import Masking
from iha.ops.precision import wide
from iha.ops.visibility import Causality, Visibility

_MAX_BLOCK_SCORES = 1 << 21  # B x H x queries x second keys x first keys of one block: 8 MiB in float32

Window = int | tuple[int | None, int | None] | None


def windows_of(window: Window) -> tuple[int | None, int | None]:
    """(w1, w2). A single number applies to both sets of keys."""
    pair = window if isinstance(window, tuple) else (window, window)
    if len(pair) != 2 or any(w is not None and w < 1 for w in pair):
        raise ValueError(f"window must be at least 1 token, a pair of such, or None; got {window!r}")
    return pair


def simplicial_attention(
    q: Tensor,  # (B, Nq, H, D), the last Nq of the N tokens
    k1: Tensor,  # (B, N, G, D)
    k2: Tensor,  # (B, N, G, D)
    v1: Tensor,  # (B, N, G, D)
    v2: Tensor,  # (B, N, G, D)
    *,
    causal: Causality = "virtual",
    window: Window = None,  # (w1, w2), or one number for both
    key_padding_mask: Tensor | None = None,  # (B, N) bool, True = a real token
    document_ids: Tensor | None = None,  # (B, N) int
    scale: float | None = None,
    max_block_scores: int = _MAX_BLOCK_SCORES,
) -> Tensor:  # (B, Nq, H, D)
    """2-simplicial attention with at most `max_block_scores` logits in memory, or B·H·N if that is more."""
    w1, w2 = windows_of(window)
    masking = Masking.of(causal, None, key_padding_mask, document_ids)
    factor, q, keys = inputs.prepare(
        q, {"k1": k1, "k2": k2, "v1": v1, "v2": v2}, (), masking, rope_theta=None, scale=scale
    )  # fmt: skip
    if in_forward_mode():
        raise ValueError("2-simplicial attention has no forward-mode derivative; use simplicial_attention_reference")
    if max_block_scores < 1:
        raise ValueError(f"max_block_scores must be at least 1, got {max_block_scores}")
    N, H = k1.shape[1], q.shape[2]
    keys = [inputs.repeat_heads(t, H) for t in keys]
    rules = (Visibility(causal, w1).clipped(N), Visibility(causal, w2).clipped(N))
    heads_first = [t.transpose(1, 2) for t in (q, *keys)]  # (B, H, N, D)
    sees_all = all(rule.causal is None and rule.window is None for rule in rules)
    if sees_all and not masking.per_sequence and simplicial_fused.fits(heads_first[0]):
        return simplicial_fused.FusedSimplicial.apply(factor, *heads_first).transpose(1, 2)
    chunk, stretch = _block_sizes(q.shape[1], N, rules[0], max_block_scores // (q.shape[0] * H))
    plan = _Plan((masking.ruled_by(rules[0]), masking.ruled_by(rules[1])), factor, chunk, stretch, q.shape[1], N)
    return _Simplicial.apply(plan, *heads_first).transpose(1, 2)


def simplicial_attention_reference(
    q: Tensor,
    k1: Tensor,
    k2: Tensor,
    v1: Tensor,
    v2: Tensor,
    *,
    causal: Causality = "virtual",
    window: Window = None,
    key_padding_mask: Tensor | None = None,
    document_ids: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The definition, with all N³ logits in memory: for short sequences."""
    w1, w2 = windows_of(window)
    masking = Masking.of(causal, None, key_padding_mask, document_ids)
    factor, q, keys = inputs.prepare(
        q, {"k1": k1, "k2": k2, "v1": v1, "v2": v2}, (), masking, rope_theta=None, scale=scale
    )  # fmt: skip
    Nq, N = q.shape[1], k1.shape[1]
    k1, k2, v1, v2 = (inputs.repeat_heads(t, q.shape[2]) for t in keys)
    first, second = (masking.ruled_by(Visibility(causal, w)) for w in (w1, w2))
    sees1, sees2 = (m.tile((N - Nq, N), (0, N), q.device) for m in (first, second))  # (1 or B, Nq, N)
    logits = factor * torch.einsum("bihd,bjhd,bkhd->bhijk", q, k1, k2)  # (B, H, Nq, N, N)
    visible = sees1[:, None, :, :, None] & sees2[:, None, :, None, :]
    weights = logits.masked_fill(~visible, -torch.inf).flatten(3).softmax(dim=-1).view_as(logits)
    return torch.einsum("bhijk,bjhd,bkhd->bihd", weights, v1, v2)


@dataclass(frozen=True)
class _Block:
    """A block of queries, a block of second keys and all first keys in reach, as slices, with their mask."""

    queries: slice
    firsts: slice
    seconds: slice
    hidden: Tensor  # (1 or B, 1, queries, seconds, firsts) bool


@dataclass(frozen=True)
class _Plan:
    maskings: tuple[Masking, Masking]  # for the first and for the second keys
    scale: float
    chunk: int  # queries per block
    stretch: int  # second keys per block
    num_queries: int
    num_tokens: int

    def rows(self, device: torch.device) -> Iterator[tuple[slice, list[_Block]]]:
        """Blocks of queries, each with its blocks of second keys."""
        first, N = self.num_tokens - self.num_queries, self.num_tokens
        for start in range(first, N, self.chunk):
            queries = (start, min(start + self.chunk, N))
            reach1, reach2 = (_reach(masking.visibility, queries, N) for masking in self.maskings)
            sees1, sees2 = (
                masking.tile(queries, reach, device)
                for masking, reach in zip(self.maskings, (reach1, reach2), strict=True)
            )
            mine = slice(queries[0] - first, queries[1] - first)
            blocks = []
            for k in range(reach2[0], reach2[1], self.stretch):
                seconds = slice(k, min(k + self.stretch, reach2[1]))
                part = sees2[:, :, seconds.start - reach2[0] : seconds.stop - reach2[0]]
                hidden = ~(part[:, None, :, :, None] & sees1[:, None, :, None, :])
                blocks.append(_Block(mine, slice(*reach1), seconds, hidden))
            yield mine, blocks

    def scores(self, block: _Block, q: Tensor, k1: Tensor, k2: Tensor) -> Tensor:
        """Scores (B, H, queries, seconds, firsts), -inf where masked, by one matrix product of q ⊙ k2 and k1."""
        pairs = q[:, :, block.queries, None] * k2[:, :, None, block.seconds]  # (B, H, queries, seconds, D)
        scores = self.scale * _times(pairs, k1[:, :, block.firsts].mT).to(wide(q.dtype))
        return scores.masked_fill_(block.hidden, -torch.inf)


class _Simplicial(torch.autograd.Function):
    """All tensors (B, H, N, D)."""

    @staticmethod
    def forward(ctx, plan: _Plan, q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        dtype = wide(q.dtype)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        lse = torch.empty(q.shape[:3], dtype=dtype, device=q.device)
        with torch.autocast(q.device.type, enabled=False):
            for mine, blocks in plan.rows(q.device):
                shape = q[:, :, mine].shape
                top = torch.full(shape[:3], -torch.inf, dtype=dtype, device=q.device)
                total, mixed = torch.zeros_like(top), torch.zeros(shape, dtype=dtype, device=q.device)
                for block in blocks:
                    scores = plan.scores(block, q, k1, k2)
                    new_top = torch.maximum(top, scores.amax(dim=(-2, -1)))
                    # A row may see no key of the first blocks. Its maximum is then -inf, and -inf - -inf would be NaN.
                    shift = new_top.masked_fill(new_top == -torch.inf, 0)
                    weights = scores.sub_(shift[..., None, None]).exp_()
                    inner = _times(weights.to(q.dtype), v1[:, :, block.firsts]).to(dtype)  # (B, H, queries, seconds, D)
                    before = (top - shift).exp()
                    total = total * before + weights.sum(dim=(-2, -1))
                    mixed = mixed * before[..., None] + (inner * v2[:, :, None, block.seconds]).sum(dim=3)
                    top = new_top
                out[:, :, mine] = mixed / total[..., None]
                lse[:, :, mine] = top + total.log()
        ctx.plan = plan
        ctx.save_for_backward(q, k1, k2, v1, v2, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        plan: _Plan = ctx.plan
        q, k1, k2, v1, v2, out, lse = ctx.saved_tensors
        dtype = wide(q.dtype)
        # Sum over blocks in at least float32: in bfloat16 every added block would round the sum again.
        dq, dk1, dk2, dv1, dv2 = (torch.zeros_like(t, dtype=dtype) for t in (q, k1, k2, v1, v2))
        delta = (grad.to(dtype) * out.to(dtype)).sum(dim=-1)  # (B, H, Nq)
        for mine, blocks in plan.rows(q.device):
            for block in blocks:
                firsts, seconds = block.firsts, block.seconds
                weights = plan.scores(block, q, k1, k2).sub_(lse[:, :, mine, None, None]).exp_()
                g_v2 = grad[:, :, mine, None] * v2[:, :, None, seconds]  # (B, H, queries, seconds, D)
                g_scores = _times(g_v2, v1[:, :, firsts].mT).to(dtype).sub_(delta[:, :, mine, None, None])
                g_scores = g_scores.mul_(weights).mul_(plan.scale).to(q.dtype)
                weights = weights.to(q.dtype)
                # Gradients of the values: out is linear in v1 and in v2.
                dv1[:, :, firsts] += _transposed_times(weights, g_v2)
                inner = _times(weights, v1[:, :, firsts]).to(dtype)  # (B, H, queries, seconds, D)
                dv2[:, :, seconds] += (inner * grad[:, :, mine, None]).sum(dim=2)
                # Gradients through the logits, which are trilinear in q, k1 and k2.
                dk1[:, :, firsts] += _transposed_times(g_scores, q[:, :, mine, None] * k2[:, :, None, seconds])
                inner = _times(g_scores, k1[:, :, firsts]).to(dtype)
                dq[:, :, mine] += (inner * k2[:, :, None, seconds]).sum(dim=3)
                dk2[:, :, seconds] += (inner * q[:, :, mine, None]).sum(dim=2)
        return None, *(t.to(q.dtype) for t in (dq, dk1, dk2, dv1, dv2))


def _block_sizes(Nq: int, N: int, rule: Visibility, scores: int) -> tuple[int, int]:
    """Numbers of queries and second keys per block that, with all first keys in reach, give at most `scores` logits."""
    around = N if rule.reach_back is None else rule.reach_back + (rule.reach_ahead or 0)
    for chunk in (32, 16, 8, 4, 2):
        stretch = scores // (chunk * min(N, around + chunk))
        if chunk <= min(Nq, stretch):
            return chunk, stretch
    return 1, max(1, scores // min(N, around + 1))


def _reach(rule: Visibility, queries: tuple[int, int], N: int) -> tuple[int, int]:
    back = N if rule.reach_back is None else rule.reach_back
    ahead = N if rule.reach_ahead is None else rule.reach_ahead
    return max(0, queries[0] - back), min(N, queries[1] + ahead)


def _times(x: Tensor, y: Tensor) -> Tensor:
    """x (B, H, a, b, c) @ y (B, H, c, d) = (B, H, a, b, d), as one product over a and b together."""
    return (x.flatten(2, 3) @ y).unflatten(2, x.shape[2:4])


def _transposed_times(x: Tensor, y: Tensor) -> Tensor:
    """Sum over a and b of x (B, H, a, b, c) and y (B, H, a, b, d): (B, H, c, d)."""
    return x.flatten(2, 3).mT @ y.flatten(2, 3)
