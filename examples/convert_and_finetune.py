"""A Llama checkpoint becomes an IHA model with the same logits; then only its pseudo-heads are trained.

The checkpoint here is a tiny random one, made on the spot. Put your own directory in its place.
"""

import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import iha


def tiny_llama(directory: Path) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.1,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.save_pretrained(directory)
    return model


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        original = tiny_llama(Path(scratch) / "llama")
        model = iha.convert.from_pretrained(Path(scratch) / "llama", num_pseudo_heads=2)
        tokens = torch.arange(40)[None] % 50  # (1, 40)
        difference = (model(tokens).logits - original(tokens).logits).abs().max().item()
        print(f"logits differ from the original's by {difference:.1e}")
        assert difference < 1e-4

        # Freeze the backbone: only alpha and R, a few hundred numbers per layer, learn.
        for name, parameter in model.named_parameters():
            parameter.requires_grad = name.split(".")[-1] in ("alpha_q", "alpha_k", "alpha_v", "collapse")
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        print(f"training {sum(p.numel() for p in trained)} of {model.num_parameters()} parameters")
        optimizer = torch.optim.AdamW(trained, lr=1e-2, weight_decay=0.0)
        losses = []
        for _ in range(40):
            loss = model(tokens, labels=tokens).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
        assert losses[-1] < losses[0]

        model.save_pretrained(Path(scratch) / "iha")
        again = AutoModelForCausalLM.from_pretrained(Path(scratch) / "iha")
        assert torch.equal(again(tokens).logits, model(tokens).logits)
        print("saved and loaded again: the same logits")


if __name__ == "__main__":
    main()
