"""The flex backend. Its kernels are the GPU's; its masks, and its forward on CPU, can be checked here."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

import iha
from iha.ops.backends import flex
from iha.ops.backends.case import Case
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility
from support import Shape, tensors

RULES = [
    Visibility("virtual", None, 2), Visibility("virtual", 3, 2), Visibility("token", None, 2),
    Visibility("token", 3, 2), Visibility(None, 3, 2), Visibility(None, None, 2),
    Visibility("token", None, 1, 3), Visibility("token", 3, 3, 2), Visibility(None, 3, 2, 1),
]  # fmt: skip


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_mask_is_the_one_of_the_other_backends(rule, masked):
    (P, P_k), N, Nq = rule.per_token, 9, 4
    real = torch.arange(N)[None] >= torch.tensor([[0], [3]]) if masked else None
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 2, 2]] * 2) if masked else None
    masking = Masking(rule, real, documents)
    rule_of_flex = flex.mask_mod(masking, (N - Nq) * P)
    got = create_mask(rule_of_flex, 2, None, Nq * P, N * P_k, device="cpu")[:, 0]
    want = masking.tile((N - Nq, N), (0, N), torch.device("cpu"))
    assert torch.equal(got, want.expand_as(got))


def test_no_backward_on_cpu_is_said_and_not_tried():
    with pytest.raises(ValueError, match="no backward on CPU"):
        iha.interleaved_head_attention(*tensors(Shape()), backend="flex")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": torch.float64}, "float64"),
        ({"per_sequence": True}, "padding or documents"),
        ({"num_queries": 1, "visibility": Visibility("virtual", None, 1)}, "single query"),
    ],
)
def test_what_its_cpu_code_cannot_do_is_refused_with_a_reason(change, reason):
    possible = Case(RULES[0], 9, 9, 64, False, False, torch.float32, torch.device("cpu"))
    assert flex.obstacle(possible) is None
    assert reason in flex.obstacle(replace(possible, **change))
    assert flex.obstacle(replace(possible, device=torch.device("cuda"), **change)) is None


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 20])
def test_forward_on_cpu_with_more_scales_than_torch_recompiles(window):
    torch.compiler.reset()
    inputs = [t.detach() for t in tensors(Shape(N=130, H=4, G=2, P=2, D=16), torch.float32)]
    for scale in (None, *(0.05 * n for n in range(-5, 6))):
        got = iha.interleaved_head_attention(*inputs, window=window, scale=scale, backend="flex")
        want = iha.reference.interleaved_head_attention(*inputs, window=window, scale=scale)
        torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
