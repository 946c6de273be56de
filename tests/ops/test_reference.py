"""The oracle itself, against the paper's definitions written out as loops and against closed forms."""

import math

import pytest
import torch
import torch.nn.functional as F

from iha import reference
from support import Shape, tensors


def by_loops(q, k, v, alpha_q, alpha_k, alpha_v, collapse, sees, scale):
    """Algorithm 1 for one sequence, one number at a time; `sees(n, p, n', p')` is the mask."""
    N, H, D = q.shape
    P = alpha_q.shape[-1]
    out = torch.zeros(N, H, D, dtype=q.dtype)
    pseudo = {}
    for name, x, alpha in (("q", q, alpha_q), ("k", k, alpha_k), ("v", v, alpha_v)):
        for h in range(H):
            for p in range(P):
                pseudo[name, h, p] = sum(alpha[m, h, p] * x[:, m] for m in range(H))  # (N, D)
    for h in range(H):
        for n in range(N):
            for p in range(P):
                seen = [(m, r) for m in range(N) for r in range(P) if sees(n, p, m, r)]
                scores = [scale * float(pseudo["q", h, p][n] @ pseudo["k", h, r][m]) for m, r in seen]
                total = sum(math.exp(s) for s in scores)
                for s, (m, r) in zip(scores, seen, strict=True):
                    out[n, h] += collapse[h, p] * math.exp(s) / total * pseudo["v", h, r][m]
    return out


@pytest.mark.parametrize(
    ("options", "sees"),
    [
        ({"causal": "virtual"}, lambda n, p, m, r: 3 * m + r <= 3 * n + p),
        ({"causal": "token"}, lambda n, p, m, r: m <= n),
        ({"causal": None}, lambda n, p, m, r: True),
        ({"causal": "virtual", "window": 2}, lambda n, p, m, r: 0 <= 3 * n + p - 3 * m - r < 6),
        ({"causal": "token", "window": 2}, lambda n, p, m, r: 0 <= n - m < 2),
        ({"causal": None, "window": 2}, lambda n, p, m, r: abs(n - m) < 2),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_algorithm_1_written_out(options, sees):
    inputs = [t.detach() for t in tensors(Shape(B=1, N=5, H=2, G=2, P=3))]
    want = by_loops(*(t[0] for t in inputs[:3]), *inputs[3:], sees, 0.5)
    got = reference.interleaved_head_attention(*inputs, **options, scale=0.5)
    torch.testing.assert_close(got[0], want, atol=1e-12, rtol=0)


def test_definition_3_stacks_pseudo_heads_one_after_the_other():
    """Pseudo-major stacking and a full R: without mask and RoPE the order of virtual tokens does not matter."""
    B, N, H, P, D = 2, 6, 3, 2, 4
    q, k, v, alpha_q, alpha_k, alpha_v, collapse = (t.detach() for t in tensors(Shape(B, N, H, H, P, D, full=True)))

    def stacked(x, alpha, h):
        return torch.cat([sum(alpha[m, h, j] * x[:, :, m] for m in range(H)) for j in range(P)], dim=1)  # (B, P*N, D)

    pseudo = []
    for h in range(H):
        scores = stacked(q, alpha_q, h) @ stacked(k, alpha_k, h).mT / D**0.5
        pseudo.append((scores.softmax(-1) @ stacked(v, alpha_v, h)).unflatten(1, (P, N)))  # (B, P, N, D)
    want = torch.stack(
        [sum(collapse[h, m * P + j] * pseudo[m][:, j] for m in range(H) for j in range(P)) for h in range(H)], dim=2
    )
    got = reference.interleaved_head_attention(q, k, v, alpha_q, alpha_k, alpha_v, collapse, causal=None)
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


def test_rope_is_multiplication_by_a_unit_complex_number():
    x = torch.randn(1, 7, 2, 6, dtype=torch.float64)
    positions = torch.tensor([0, 1, 2, 5, 9, 100, 4000])
    number = torch.complex(x[..., :3], x[..., 3:])
    angle = positions[:, None] * 500.0 ** (-torch.arange(3, dtype=torch.float64) / 3)
    turned = number * torch.polar(torch.ones_like(angle), angle)[None, :, None]
    got = reference.rotate(x, positions, 500.0)
    torch.testing.assert_close(got, torch.cat((turned.real, turned.imag), -1), atol=1e-12, rtol=0)


def test_grouped_heads_are_repeated_heads():
    """Query head h reads k/v head h*G // H: with identity mixing this is MHA on repeated k and v."""
    q, k, v, *_ = (t.detach() for t in tensors(Shape(H=6, G=2, P=1)))
    eye = [torch.eye(h, dtype=torch.float64)[:, :, None] for h in (6, 2, 2)]
    got = reference.interleaved_head_attention(q, k, v, *eye, torch.ones(6, 1, dtype=torch.float64))
    k, v = (t.repeat_interleave(3, dim=2) for t in (k, v))
    want = torch.nn.functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
    torch.testing.assert_close(got, want.transpose(1, 2), atol=1e-12, rtol=0)


def test_linear_score_is_no_softmax():
    shape = Shape(B=1, N=4, H=1, G=1, P=1, D=3)
    q, k, v, *_ = (t.detach() for t in tensors(shape))
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    got = reference.interleaved_head_attention(q, k, v, one, one, one, one[0], causal=None, scale=1.0, score="linear")
    want = q[0, :, 0] @ k[0, :, 0].T @ v[0, :, 0]
    torch.testing.assert_close(got[0, :, 0], want, atol=1e-12, rtol=0)


def test_hard_score_averages_ties():
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    q = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    k = torch.tensor([3.0, 1.0, 3.0, 2.0], dtype=torch.float64).view(1, 4, 1, 1)
    v = torch.tensor([10.0, 20.0, 50.0, 80.0], dtype=torch.float64).view(1, 4, 1, 1)
    got = reference.interleaved_head_attention(q, k, v, one, one, one, one[0], causal=None, score="hard")
    assert got.item() == 30.0  # the mean of 10 and 50


def test_values_may_be_wider_than_keys():
    q, k, v, *rest = (t.detach() for t in tensors(Shape()))
    wide = torch.cat((v, 2 * v), dim=-1)  # (B, N, G, 2D)
    narrow = reference.interleaved_head_attention(q, k, v, *rest)
    got = reference.interleaved_head_attention(q, k, wide, *rest)
    torch.testing.assert_close(got, torch.cat((narrow, 2 * narrow), -1), atol=1e-12, rtol=0)


def test_padded_and_unseen_rows_are_zero():
    inputs = [t.detach() for t in tensors(Shape(N=5))]
    real = torch.tensor([[False, True, True, False, True], [False] * 5])
    out = reference.interleaved_head_attention(*inputs, key_padding_mask=real)
    assert torch.equal(out[~real], torch.zeros_like(out[~real]))
    assert out[real].abs().min() > 0


@pytest.mark.parametrize("causal", ["token", None])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize(("P", "P_k"), [(1, 3), (3, 1), (2, 6)])
def test_unequal_numbers_are_equal_ones_with_copies(P, P_k, window, causal):
    """The paper's operator, with every pseudo-query or every pseudo-key several times.

    Copies of a query give equal outputs, so R may share its weight among them; copies of a key share its weight.
    """
    shape = Shape(P=P, P_k=P_k)
    q, k, v, alpha_q, alpha_k, alpha_v, collapse = (t.detach() for t in tensors(shape))
    options = {"causal": causal, "window": window, "rope_theta": 100.0, "rope_positions": "token"}
    found = reference.interleaved_head_attention(q, k, v, alpha_q, alpha_k, alpha_v, collapse, **options)
    equal = max(P, P_k)
    queries, keys = equal // P, equal // P_k
    alpha_q, collapse = (t.repeat_interleave(queries, dim=-1) for t in (alpha_q, collapse / queries))
    alpha_k, alpha_v = (t.repeat_interleave(keys, dim=-1) for t in (alpha_k, alpha_v))
    wanted = reference.interleaved_head_attention(q, k, v, alpha_q, alpha_k, alpha_v, collapse, **options)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)


def test_mixed_heads_are_heads_that_the_projections_could_have_made():
    """alpha_q of (H, H', P) with P = 1 and R = 1 per head is multi-head attention of H' other heads."""
    shape = Shape(H=4, G=2, P=1, mixed=(6, 3))
    q, k, v, alpha_q, alpha_k, alpha_v, collapse = (t.detach() for t in tensors(shape))
    found = reference.interleaved_head_attention(q, k, v, alpha_q, alpha_k, alpha_v, collapse)
    mixed = [torch.einsum("mhp,bnmd->bnhd", a, t) for a, t in ((alpha_q, q), (alpha_k, k), (alpha_v, v))]
    heads = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in mixed), is_causal=True, enable_gqa=True)
    torch.testing.assert_close(found, torch.einsum("hm,bmnd->bnhd", collapse, heads), atol=1e-12, rtol=0)
