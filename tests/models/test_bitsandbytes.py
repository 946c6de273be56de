"""8 and 4 bit weights of bitsandbytes, on the CPU. The package is not among the extras: pip install bitsandbytes."""

from pathlib import Path

import pytest
import torch
from tiny import tiny_model, tokens
from transformers import BitsAndBytesConfig

from iha.models import IHAForCausalLM

bitsandbytes = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
pytest.importorskip("accelerate")
WIDTHS = {"hidden_size": 64, "intermediate_size": 64}  # blocks of 64 weights share a scale
BITS = {
    # Without outliers, which are chosen from all tokens of a call: then a token alone is rounded as among others.
    8: BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0),
    4: BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32),
}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("kind", ["iha", "iha-everywhere", "talking_heads"])
@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_quantised_weights_decode(kind: str, bits: int, tmp_path: Path) -> None:
    model = tiny_model(kind, **WIDTHS)
    model.save_pretrained(tmp_path)
    quantised = IHAForCausalLM.from_pretrained(
        tmp_path, quantization_config=BITS[bits], device_map="cpu", dtype=torch.float32
    )
    assert not quantised.model.layers[0].self_attn.q_proj.weight.is_floating_point()
    x = tokens(2, 12)
    whole = quantised(x).logits
    cache, logits = None, []
    for chunk in x.split([5] + [1] * 7, dim=1):
        out = quantised(chunk, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logits.append(out.logits)
    torch.testing.assert_close(torch.cat(logits, dim=1), whole, rtol=0, atol=5e-5)
    assert quantised.generate(x, max_new_tokens=3, do_sample=False).shape == (2, 15)
    if bits == 8:
        expected, tolerance = model(x).logits, 0.1 * float(model(x).logits.abs().max())
    else:  # four bits are far from the weights, but they are weights: those of a model in floating point
        expected, tolerance = _dequantised(quantised, model)(x).logits, 1e-4
    torch.testing.assert_close(whole, expected, rtol=0, atol=tolerance)


def _dequantised(quantised: IHAForCausalLM, model: IHAForCausalLM) -> IHAForCausalLM:
    for name, module in quantised.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            weight = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
            model.get_submodule(name).weight.copy_(weight)
    return model
