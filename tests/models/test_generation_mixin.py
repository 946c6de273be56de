"""What `generate` would silently get wrong is refused, and what it gets right is not."""

import pytest
import torch
from tiny import KINDS, tiny_model, tokens
from tiny_seq2seq import seq2seq

WITH_VIRTUAL_TOKENS = {kind for kind in KINDS if kind.startswith(("iha", "gated", "paired"))}


@pytest.mark.parametrize("build", [tiny_model, seq2seq])
def test_continuous_batching_is_refused(build) -> None:
    model = build()
    for run in (
        lambda: model.generate_batch([[1, 2, 3]]),
        lambda: model.init_continuous_batching(),
        lambda: model.continuous_batching_context_manager().__enter__(),
    ):
        with pytest.raises(ValueError, match=r"continuous batching .* is not supported"):
            run()


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_attentions_of_assisted_generation(kind: str) -> None:
    """`transformers` cuts them by tokens: refused where rows are virtual tokens, those of greedy decoding elsewhere."""
    model, assistant, x = tiny_model(kind), tiny_model(kind, seed=1), tokens(1, 7)
    for m in (model, assistant):
        m.set_attn_implementation("eager")
    options = {"max_new_tokens": 5, "do_sample": False, "return_dict_in_generate": True, "output_attentions": True}
    if kind in WITH_VIRTUAL_TOKENS:
        with pytest.raises(ValueError, match="output_attentions is not supported in assisted generation"):
            model.generate(x, assistant_model=assistant, **options)
        with pytest.raises(ValueError, match="output_attentions is not supported in assisted generation"):
            model.generate(x, prompt_lookup_num_tokens=2, **options)
        assert model.generate(x, assistant_model=assistant, **options | {"output_attentions": False}).attentions is None
        return
    found, expected = model.generate(x, assistant_model=assistant, **options), model.generate(x, **options)
    assert torch.equal(found.sequences, expected.sequences)
    for one, other in zip(found.attentions, expected.attentions, strict=True):
        for layer, wanted in zip(one, other, strict=True):
            torch.testing.assert_close(layer[..., : wanted.shape[-1]], wanted, rtol=0, atol=1e-5)
