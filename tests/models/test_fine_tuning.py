"""LoRA with alpha and R: they learn, and the adapter saves, reloads, decodes and merges."""

from pathlib import Path

import pytest
import torch
from tiny import tiny_config, tiny_model, tokens

from iha.models import IHAForCausalLM
from iha.models.fine_tuning import MIXING, lora_config, merge_lora

peft = pytest.importorskip("peft")


@pytest.mark.parametrize("kind", ["iha", "iha-full-collapse"])
def test_alpha_and_r_learn_beside_the_projections(kind: str, tmp_path: Path) -> None:
    model, x = tiny_model(kind), tokens(2, 9)
    names, before = list(model.state_dict()), model(x).logits.detach()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    wrapped = peft.get_peft_model(model, lora_config(model.config, r=2))
    torch.testing.assert_close(wrapped(x).logits, before)  # B starts at zero
    optimiser = torch.optim.Adam([p for p in wrapped.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(5):
        loss = wrapped(x, labels=x).loss
        losses.append(loss.item())
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    assert losses[-1] < losses[0]
    wrapped.eval()
    with torch.no_grad():
        after = wrapped(x).logits
        cache, logits = None, []
        for t in range(9):
            out = wrapped(x[:, t : t + 1], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            logits.append(out.logits)
        torch.testing.assert_close(torch.cat(logits, dim=1), after, rtol=0, atol=5e-5)

        wrapped.save_pretrained(tmp_path / "adapter")
        reloaded = peft.PeftModel.from_pretrained(tiny_model(kind), tmp_path / "adapter").eval()
        torch.testing.assert_close(reloaded(x).logits, after, rtol=0, atol=1e-6)

        merged = merge_lora(wrapped)
        assert isinstance(merged, IHAForCausalLM)
        assert list(merged.state_dict()) == names
        torch.testing.assert_close(merged(x).logits, after, rtol=0, atol=1e-4)
        for name, p in merged.named_parameters():
            learned = name.endswith((*MIXING, "_proj.weight")) and "self_attn" in name
            assert (not torch.equal(p, start[name])) == learned, name
        merged.save_pretrained(tmp_path / "merged")
        again = IHAForCausalLM.from_pretrained(tmp_path / "merged").eval()
        torch.testing.assert_close(again(x).logits, after, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "r", "message"), [("iha", 1, r"r=1 .* at least 2"), ("global", 8, "no layer of this model has alpha")]
)
def test_what_cannot_be_trained_is_refused(kind: str, r: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lora_config(tiny_config(kind), r)
