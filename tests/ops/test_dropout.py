"""Dropout of attention weights: the same mask gives the same numbers, and backends without it say so."""

import pytest
import torch
import torch.nn.functional as F

from iha import interleaved_head_attention
from iha.ops import reference
from iha.ops.multihead import multihead_attention

B, N, H, D, P = 2, 7, 4, 8, 2
PADDING = torch.arange(N).expand(B, N) < torch.tensor([[N], [N - 2]])
DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * B)
CASES = {
    "plain": {}, "no mask": {"causal": None}, "token": {"causal": "token"}, "window": {"window": 3},
    "padding": {"key_padding_mask": PADDING}, "documents": {"document_ids": DOCUMENTS},
}  # fmt: skip


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    shapes = [(B, N, H, D)] * 3 + [(H, H, P)] * 3 + [(H, P)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def by_hand(q, k, v, alpha_q, alpha_k, alpha_v, collapse, mask, scale=D**-0.5, **masking):
    """Algorithm 1 with a given mask (B, H, N*P, N*P) on the weights, which the reference shows through its values."""
    q, k, v = (
        torch.einsum("mhp,bnmd->bnphd", alpha, heads).flatten(1, 2)  # (B, N*P, H, D)
        for alpha, heads in ((alpha_q, q), (alpha_k, k), (alpha_v, v))
    )
    scores = scale * torch.einsum("bihd,bjhd->bhij", q, k)
    weights = scores.masked_fill(~visible(**masking), -torch.inf).softmax(-1) * mask
    out = torch.einsum("bhij,bjhd->bihd", weights, v).unflatten(1, (N, P))
    return torch.einsum("hp,bnphd->bnhd", collapse, out)


def visible(causal="virtual", window=None, document_ids=None):
    """(B or 1, 1, N*P, N*P); padding is checked apart."""
    i, j = torch.arange(N * P)[:, None], torch.arange(N * P)[None]
    seen = {"virtual": j <= i, "token": j // P <= i // P, None: (i == i) & (j == j)}[causal]
    if window is not None:
        seen = seen & (i - j < window * P)
    seen = seen[None, None]
    if document_ids is not None:
        owner = document_ids.repeat_interleave(P, 1)
        seen = seen & (owner[:, None, :, None] == owner[:, None, None, :])
    return seen


def mask_of(p, seed):
    """What `F.dropout` multiplies weights of this shape with under this seed."""
    torch.manual_seed(seed)
    return F.dropout(torch.ones(B, H, N * P, N * P, dtype=torch.float64), p)


@pytest.mark.parametrize("name", ["token", "window", "documents"])
def test_the_formula_with_the_same_mask(name, tensors):
    mask = mask_of(0.3, seed=5)
    torch.manual_seed(5)
    out = interleaved_head_attention(*tensors, **CASES[name], dropout_p=0.3)
    torch.testing.assert_close(out, by_hand(*tensors, mask, **CASES[name]))
    ours, theirs = (
        torch.autograd.grad(o.square().sum(), tensors) for o in (out, by_hand(*tensors, mask, **CASES[name]))
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_plain_attention_is_that_of_torch(tensors):
    """The virtual sequence through `scaled_dot_product_attention` with the same seed."""
    q, k, v, alpha_q, alpha_k, alpha_v, collapse = tensors
    virtual = [
        torch.einsum("mhp,bnmd->bnphd", alpha, heads).flatten(1, 2).transpose(1, 2)
        for alpha, heads in ((alpha_q, q), (alpha_k, k), (alpha_v, v))
    ]
    torch.manual_seed(5)
    attended = F.scaled_dot_product_attention(*virtual, dropout_p=0.3, is_causal=True).transpose(1, 2)
    expected = torch.einsum("hp,bnphd->bnhd", collapse, attended.unflatten(1, (N, P)))
    torch.manual_seed(5)
    torch.testing.assert_close(interleaved_head_attention(*tensors, dropout_p=0.3), expected)


@pytest.mark.parametrize("name", CASES)
def test_without_dropout_nothing_changes_and_with_it_the_mean_stays(name, tensors):
    with torch.no_grad():
        exact = reference.interleaved_head_attention(*tensors, **{"causal": "virtual", **CASES[name]})
        torch.testing.assert_close(interleaved_head_attention(*tensors, **CASES[name], dropout_p=0.0), exact)
        torch.manual_seed(0)
        draws = torch.stack([interleaved_head_attention(*tensors, **CASES[name], dropout_p=0.5) for _ in range(400)])
    assert (draws.std(0) > 0).any()
    error = (draws.mean(0) - exact) / (draws.std(0) / 20 + 1e-12)  # in standard errors
    assert error.square().mean().sqrt() < 1.3
    if "key_padding_mask" in CASES[name]:
        assert (draws[:, ~PADDING] == 0).all()


def test_multihead_too(tensors):
    q, k, v = tensors[:3]
    torch.manual_seed(3)
    expected = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), dropout_p=0.4, is_causal=True)
    torch.manual_seed(3)
    torch.testing.assert_close(multihead_attention(q, k, v, dropout_p=0.4), expected.transpose(1, 2))


@pytest.mark.parametrize(
    ("backend", "options"),
    [("reference", {}), ("banded", {"window": 3}), ("flex", {}), ("flash", {}), ("sdpa", {"causal": "token"})],
)
def test_a_backend_that_cannot_drop_says_so(backend, options, tensors):
    with pytest.raises(ValueError, match=f"backend='{backend}' cannot do this: .*(drop|dropout)"):
        interleaved_head_attention(*tensors, **options, backend=backend, dropout_p=0.1)


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_a_bad_probability_is_refused(p, tensors):
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\), got"):
        interleaved_head_attention(*tensors, dropout_p=p)
