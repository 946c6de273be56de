"""Masks and lengths of `transformers`: what they mean, and which are refused."""

import pytest
import torch
from tiny import KINDS, tiny_model, tokens


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_flattened_batches_by_their_lengths(kind: str) -> None:
    """`DataCollatorWithFlattening` can give lengths without positions: documents must not see each other."""
    model, a, b = tiny_model(kind), tokens(1, 7), tokens(1, 6, seed=1)
    packed, lengths = torch.cat((a, b), dim=1), torch.tensor([0, 7, 13], dtype=torch.int32)
    expected = torch.cat((model(a).logits, model(b).logits), dim=1)
    found = model(packed, cu_seq_lens_q=lengths, cu_seq_lens_k=lengths, max_length_q=7, max_length_k=7).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


def test_lengths_need_one_row() -> None:
    with pytest.raises(ValueError, match=r"one row.* got 2 rows"):
        tiny_model()(tokens(2, 5), cu_seq_lens_q=torch.tensor([0, 5]))


def test_masks_of_four_dimensions_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"\(1, 1, 5, 5\): 4-D masks"):
        tiny_model()(tokens(1, 5), attention_mask=torch.ones(1, 1, 5, 5))
