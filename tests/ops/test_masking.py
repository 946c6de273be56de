"""The mask of a tile: the rule, padding and documents together."""

import pytest
import torch

import iha
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility
from support import Shape, tensors

CPU = torch.device("cpu")


def test_a_padded_token_sees_itself_and_no_row_is_empty():
    real = torch.tensor([[True, False, True, True]])
    tile = Masking(Visibility("token", None, 2), real).tile((0, 4), (0, 4), CPU)[0]
    assert tile.any(-1).all()
    assert torch.equal(tile[2:4], torch.eye(8, dtype=torch.bool)[2:4])
    others = torch.tensor([0, 1, 4, 5, 6, 7])
    assert not tile[others][:, 2:4].any()


def test_a_padded_token_sees_its_own_keys_where_the_numbers_differ():
    real = torch.tensor([[True, False, True, True]])
    tile = Masking(Visibility("token", None, 1, 2), real).tile((0, 4), (0, 4), CPU)[0]
    assert tile.shape == (4, 8)
    assert tile.int().tolist() == [
        [1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 1, 1, 0, 0], [1, 1, 0, 0, 1, 1, 1, 1],
    ]  # fmt: skip


@pytest.mark.parametrize("queries", [(0, 6), (2, 5)])
def test_a_tile_is_a_piece_of_the_whole_mask(queries):
    rule, documents = Visibility("virtual", 3, 2), torch.tensor([[0, 0, 1, 1, 1, 2], [5, 5, 5, 5, 6, 6]])
    real = torch.tensor([[True] * 6, [False, True, True, True, False, True]])
    masking = Masking(rule, real, documents)
    whole, tile = masking.tile((0, 6), (0, 6), CPU), masking.tile(queries, (1, 5), CPU)
    assert torch.equal(tile, whole[:, 2 * queries[0] : 2 * queries[1], 2:10])


def test_packed_and_unpacked_it_is_the_same():
    masking = Masking(Visibility("token", 3, 2, 5), torch.ones(1, 5, dtype=torch.bool), torch.arange(5)[None])
    again = Masking.unpack(*masking.pack())
    assert again.visibility == masking.visibility
    assert again.key_padding_mask is masking.key_padding_mask
    assert again.document_ids is masking.document_ids


def test_keywords_are_those_of_the_operator():
    real, documents = torch.arange(21)[None] >= torch.tensor([[0], [3]]), (torch.arange(21) // 8).expand(2, 21)
    masking, inputs = Masking.of("token", 5, real, documents, num_pseudo_heads=3), tensors(Shape())
    got = iha.interleaved_head_attention(*inputs, **masking.keywords)
    want = iha.reference.interleaved_head_attention(
        *inputs, causal="token", window=5, key_padding_mask=real, document_ids=documents
    )
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)
