"""A tiny encoder–decoder and what it reads."""

from typing import Any

import torch
from tiny import KINDS, VOCABULARY, tokens
from torch import Tensor

from iha.models import IHAEncoderDecoderConfig, IHAForConditionalGeneration

PAD, START = 0, 1


def seq2seq(kind: str = "iha", **overrides: Any) -> IHAForConditionalGeneration:
    fields: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.2,
        "tie_word_embeddings": False, "pad_token_id": PAD, "eos_token_id": None, "decoder_start_token_id": START,
        "cross_attention": "multihead" if kind.startswith("global") else "iha",
    }  # fmt: skip
    torch.manual_seed(0)
    return IHAForConditionalGeneration(IHAEncoderDecoderConfig(**{**fields, **KINDS[kind], **overrides})).eval()


def padded_source() -> tuple[Tensor, Tensor]:
    """Two inputs of 9 and 6 tokens, padded on the right."""
    mask = torch.arange(9)[None] < torch.tensor([[9], [6]])
    return tokens(2, 9).masked_fill(~mask, PAD), mask.long()
