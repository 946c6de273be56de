"""torch.compile with dynamic length: everything compiles once."""

import pytest
import torch
from tiny import tiny_model, tokens
from torch._dynamo.testing import CompileCounter

pytestmark = pytest.mark.slow
KINDS = ["iha", "iha-everywhere", "global_local"]


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_one_graph_for_all_lengths(kind: str) -> None:
    model, counter = tiny_model(kind), CompileCounter()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=counter, dynamic=True, fullgraph=True)
    for N in (9, 12, 17):
        x = tokens(2, N)
        torch.testing.assert_close(compiled(x, use_cache=False).logits, model(x).logits, rtol=0, atol=5e-5)
    assert counter.frame_count == 1


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_three_graphs_for_all_of_decoding(kind: str) -> None:
    """Prefill, the first token, and all after it, as Llama has: not one for every token."""
    model, counter, x = tiny_model(kind), CompileCounter(), tokens(2, 20)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=counter, dynamic=True)
    cache, logits = None, []
    for chunk in x.split([8] + [1] * 12, dim=1):
        out = compiled(chunk, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logits.append(out.logits)
    torch.testing.assert_close(torch.cat(logits, dim=1), model(x).logits, rtol=0, atol=5e-5)
    assert counter.frame_count <= 3


def test_a_training_step_of_talking_heads_compiles_whole() -> None:
    """Forward and backward in one graph each (`_can_compile_fullgraph`), with the gradients of eager mode."""
    model, x = tiny_model("talking_heads").train(), tokens(2, 11)
    assert model._can_compile_fullgraph
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    found = []
    for run in (model, compiled):
        model.zero_grad()
        loss = run(x, labels=x, use_cache=False).loss
        loss.backward()
        found.append((loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=0, atol=1e-5)
    for name, gradient in found[0][1].items():
        torch.testing.assert_close(found[1][1][name], gradient, rtol=1e-3, atol=1e-5, msg=name)
        assert gradient.abs().max() > 0, name
