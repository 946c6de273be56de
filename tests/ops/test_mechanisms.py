"""What every mechanism must do, checked for all of them: the fast form against the definition, masks, memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from iha.ops import reference
from iha.ops.differential import differential_attention, differential_attention_reference
from iha.ops.multi_token import multi_token_attention, multi_token_attention_reference
from iha.ops.multihead import multihead_attention
from iha.ops.simplicial import simplicial_attention, simplicial_attention_reference
from iha.ops.strassen import strassen_attention, strassen_attention_reference
from iha.ops.talking_heads import talking_heads_attention, talking_heads_attention_reference


def multihead_reference(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """The paper's operator with one pseudo-head and nothing to mix."""
    H, G = q.shape[2], k.shape[2]
    eyes = [torch.eye(n, dtype=q.dtype)[:, :, None] for n in (H, G, G)]
    return reference.interleaved_head_attention(q, k, v, *eyes, torch.ones(H, 1, dtype=q.dtype), **options)


@dataclass(frozen=True)
class Mechanism:
    fast: Callable[..., Tensor]
    definition: Callable[..., Tensor]
    num_keys: int = 2  # tensors with one row a key token
    weights: Callable[[int, int], list[tuple[int, ...]]] = lambda H, D: []  # their shapes
    blocks: dict[str, int] = field(default_factory=dict)  # small blocks, for the fast form
    options: dict[str, Any] = field(default_factory=dict)
    rope: bool = True
    partial: bool = True  # may q hold the last tokens only?

    def inputs(
        self, B: int, Nq: int, N: int, H: int, G: int, D: int, dtype: torch.dtype = torch.float64
    ) -> list[Tensor]:
        shapes = [(B, Nq if self.partial else N, H, D)] + [(B, N, G, D)] * self.num_keys
        if self.fast is differential_attention:
            shapes[2] = (B, N, G // 2, 2 * D)
        tensors = [torch.randn(s, dtype=torch.float64) for s in shapes + self.weights(H, D)]
        return [t.to(dtype).requires_grad_() for t in tensors]


MECHANISMS = {
    "multihead": Mechanism(multihead_attention, multihead_reference),
    "talking_heads": Mechanism(
        talking_heads_attention,
        talking_heads_attention_reference,
        weights=lambda H, D: [(H, H)] * 2,
        blocks={"chunk": 5},
    ),
    "differential": Mechanism(
        differential_attention,
        differential_attention_reference,
        weights=lambda H, D: [(), (2 * D,)],
        options={"lambda_init": 0.35},
    ),
    "simplicial": Mechanism(
        simplicial_attention, simplicial_attention_reference, num_keys=4, blocks={"max_block_scores": 900}, rope=False
    ),
    "strassen": Mechanism(strassen_attention, strassen_attention_reference, num_keys=4, blocks={"chunk": 5}),
    "multi_token": Mechanism(
        multi_token_attention,
        multi_token_attention_reference,
        weights=lambda H, D: [(H, 3, 4), (H // 2, 2, 2)],
        blocks={"chunk": 5},
        partial=False,
    ),
}
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def ragged_padding(B: int, N: int) -> Tensor:
    """Left padding of another length in every sequence, and a hole."""
    mask = torch.arange(N)[None] >= torch.arange(B)[:, None] % N
    mask[0, N // 2] = False
    return mask


def packed_documents(B: int, N: int) -> Tensor:
    return (torch.arange(N)[None] * 3 // N + torch.arange(B)[:, None]).int()


def masks(B: int, N: int, kind: str) -> dict[str, Tensor]:
    found = {}
    if kind in ("padding", "both"):
        found["key_padding_mask"] = ragged_padding(B, N)
    if kind in ("documents", "both"):
        found["document_ids"] = packed_documents(B, N)
    return found


def compare(mechanism: Mechanism, tensors: list[Tensor], atol: float, **options: Any) -> None:
    """The fast form against the definition: the output and the gradient of every tensor."""
    options |= mechanism.options
    fast = mechanism.fast(*tensors, **mechanism.blocks, **options)
    exact = mechanism.definition(*tensors, **options)
    torch.testing.assert_close(fast, exact, atol=atol, rtol=0)
    direction = torch.randn_like(exact)
    found = torch.autograd.grad(fast, tensors, direction)
    wanted = torch.autograd.grad(exact, tensors, direction)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=10 * atol, rtol=1e-10)


@every_mechanism
@pytest.mark.parametrize("mask", ["none", "padding", "documents", "both"])
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("causal", ["virtual", None])
def test_equals_its_definition_with_gradients(mechanism: Mechanism, causal: str, window: int | None, mask: str) -> None:
    B, N = 2, 13
    rope = {"rope_theta": 100.0} if mechanism.rope else {}
    compare(
        mechanism, mechanism.inputs(B, N, N, 4, 2, 4), 1e-12, causal=causal, window=window, **rope, **masks(B, N, mask)
    )


@every_mechanism
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_equals_its_definition_for_any_shape(mechanism: Mechanism, data: st.DataObject) -> None:
    B, N = data.draw(st.integers(1, 3), "B"), data.draw(st.integers(1, 14), "N")
    Nq = data.draw(st.integers(1, N), "Nq")
    G = data.draw(st.sampled_from([2, 4]), "G")
    H, D = G * data.draw(st.integers(1, 2), "repeats"), data.draw(st.sampled_from([1, 2, 5]), "D")
    torch.manual_seed(data.draw(st.integers(0, 99), "seed"))
    options = {
        "causal": data.draw(st.sampled_from(["virtual", "token", None]), "causal"),
        "window": data.draw(st.none() | st.integers(1, N + 2), "window"),
        "scale": data.draw(st.none() | st.floats(0.1, 2), "scale"),
        **masks(B, N, data.draw(st.sampled_from(["none", "padding", "documents", "both"]), "mask")),
    }
    compare(mechanism, mechanism.inputs(B, Nq, N, H, G, D), 1e-11, **options)


@every_mechanism
def test_gradcheck(mechanism: Mechanism) -> None:
    tensors = mechanism.inputs(1, 3, 5, 2, 2, 2)
    options = mechanism.options | mechanism.blocks | masks(1, 5, "documents")
    assert torch.autograd.gradcheck(lambda *t: mechanism.fast(*t, **options), tensors)


@every_mechanism
def test_padding_may_hold_anything(mechanism: Mechanism) -> None:
    """NaN at padded tokens reaches no other output and no gradient; padded rows are zero."""
    B, N = 2, 9
    mask = ragged_padding(B, N)
    tensors = mechanism.inputs(B, N, N, 4, 2, 4)
    rows = 1 + mechanism.num_keys
    poisoned = [t.detach().clone().requires_grad_() for t in tensors]
    for t in poisoned[:rows]:
        t.data[~mask] = torch.nan
    options = mechanism.options | mechanism.blocks | {"key_padding_mask": mask}
    clean, out = mechanism.fast(*tensors, **options), mechanism.fast(*poisoned, **options)
    torch.testing.assert_close(out, clean, atol=0, rtol=0)
    assert out[~mask].abs().max() == 0
    direction = torch.randn_like(out)
    for n, (one, other) in enumerate(
        zip(torch.autograd.grad(out, poisoned, direction), torch.autograd.grad(clean, tensors, direction), strict=True)
    ):
        torch.testing.assert_close(one, other, atol=0, rtol=0)
        assert n >= rows or one[~mask].abs().max() == 0


@every_mechanism
@pytest.mark.parametrize("window", [None, 3])
def test_packed_documents_are_alone(mechanism: Mechanism, window: int | None) -> None:
    lengths = (5, 1, 4)
    N = sum(lengths)
    tensors = mechanism.inputs(1, N, N, 4, 2, 4)
    ids = torch.repeat_interleave(torch.tensor([7, 3, 5]), torch.tensor(lengths))[None]
    options = mechanism.options | mechanism.blocks | {"window": window}
    packed = mechanism.fast(*tensors, document_ids=ids, **options)
    rows = 1 + mechanism.num_keys
    parts = [torch.split(t, lengths, dim=1) for t in tensors[:rows]]
    alone = [mechanism.fast(*document, *tensors[rows:], **options) for document in zip(*parts, strict=True)]
    torch.testing.assert_close(packed, torch.cat(alone, dim=1), atol=1e-12, rtol=0)


@every_mechanism
def test_the_future_is_not_seen(mechanism: Mechanism) -> None:
    N, now = 11, 6
    tensors = [t.detach() for t in mechanism.inputs(1, N, N, 4, 2, 4)]
    changed = [t.clone() for t in tensors]
    for t in changed[: 1 + mechanism.num_keys]:
        t[:, now + 1 :] += 10
    options = mechanism.options | mechanism.blocks
    before, after = mechanism.fast(*tensors, **options), mechanism.fast(*changed, **options)
    torch.testing.assert_close(before[:, : now + 1], after[:, : now + 1], atol=1e-13, rtol=0)
    assert not torch.allclose(before[:, now + 1 :], after[:, now + 1 :], atol=1e-3)


@every_mechanism
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounds_no_worse_than_the_plain_formula(mechanism: Mechanism, dtype: torch.dtype) -> None:
    """Error against float64 at most twice that of the definition in the same precision, outputs and gradients."""
    exact = [t.detach().to(dtype).double().requires_grad_() for t in mechanism.inputs(2, 64, 64, 4, 2, 16)]
    rounded = [t.detach().to(dtype).requires_grad_() for t in exact]
    truth = mechanism.definition(*exact, **mechanism.options)
    plain = mechanism.definition(*rounded, **mechanism.options)
    blocks = {name: {"chunk": 5, "max_block_scores": 20_000}[name] for name in mechanism.blocks}  # many, for many sums
    fast = mechanism.fast(*rounded, **blocks, **mechanism.options)
    direction = torch.randn_like(truth).to(dtype)
    truths = [truth, *torch.autograd.grad(truth, exact, direction.double())]
    plains = [plain, *torch.autograd.grad(plain, rounded, direction)]
    fasts = [fast, *torch.autograd.grad(fast, rounded, direction)]
    for wanted, one, other in zip(truths, plains, fasts, strict=True):
        assert other.dtype == dtype
        allowed = 2 * (one.double() - wanted).abs().max() + torch.finfo(dtype).eps * wanted.abs().max()
        assert (other.double() - wanted).abs().max() <= allowed


class LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that any operator produced."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, tuple | list) else (out,):
            if isinstance(t, Tensor) and t.untyped_storage().nbytes() >= t.numel() * t.element_size():  # not expanded
                self.elements = max(self.elements, t.numel())
        return out


@pytest.mark.parametrize(
    ("name", "N", "blocks", "bound"),
    [
        ("talking_heads", 256, {"chunk": 16}, 4 * 16 * 256),
        ("multi_token", 256, {"chunk": 16}, 4 * (16 + 2) * (256 + 3)),
        ("strassen", 64, {"chunk": 2}, 4 * 64 * 64),
        ("simplicial", 64, {"max_block_scores": 4 * 64 * 64}, 4 * 64 * 64),
    ],
)
def test_memory_is_bounded_forward_and_backward(name: str, N: int, blocks: dict[str, int], bound: int) -> None:
    """One block's logits, N·chunk (or N², never N³), is the largest tensor there is, and less with a window."""
    mechanism = MECHANISMS[name]
    tensors = mechanism.inputs(1, N, N, 4, 4, 8, torch.float32)
    with LargestTensor() as mode:
        mechanism.fast(*tensors, **blocks, **mechanism.options).sum().backward()
    assert bound // 4 < mode.elements <= bound
    with LargestTensor() as mode:
        mechanism.fast(*tensors, window=8, **blocks, **mechanism.options).sum().backward()
    assert mode.elements <= (bound if "max_block_scores" in blocks else max(bound // 4, 4 * N * 8))


@every_mechanism
@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"window": 0}, "0"), ({"window": -3}, "-3"), ({"causal": "yes"}, "yes"), ({"scale": float("nan")}, "nan")],
)
def test_bad_options_are_named(mechanism: Mechanism, wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        mechanism.fast(*mechanism.inputs(1, 4, 4, 2, 2, 4), **(mechanism.options | wrong))


@every_mechanism
def test_bad_shapes_are_named(mechanism: Mechanism) -> None:
    q, *rest = mechanism.inputs(1, 4, 4, 4, 4, 4)
    options = mechanism.options
    with pytest.raises(ValueError, match="5"):
        mechanism.fast(torch.randn(1, 5, 4, 4, dtype=torch.float64), *rest, **options)  # more queries than keys
    with pytest.raises(ValueError, match=r"\(1, 3\)"):
        mechanism.fast(q, *rest, key_padding_mask=torch.ones(1, 3, dtype=torch.bool), **options)
    with pytest.raises(ValueError, match="float32"):
        mechanism.fast(q, *rest, document_ids=torch.zeros(1, 4), **options)
    many = mechanism.inputs(1, 4, 4, 6, 4, 4)
    with pytest.raises(ValueError, match="6 heads"):
        mechanism.fast(*many, **options)
