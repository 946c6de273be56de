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
