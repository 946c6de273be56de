"""The mask of a tile: the rule, padding and documents together."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=100)
@given(st.data())
def test_ranges_are_the_tile_wherever_there_are_ranges(data):
    N = data.draw(st.integers(1, 9))
    causal, P_k = data.draw(st.sampled_from([("virtual", None), ("token", None), ("token", 3), (None, 1)]))
    rule = Visibility(causal, data.draw(st.sampled_from([None, 1, 3])), 2, P_k)
    real = documents = None
    if data.draw(st.booleans()):
        real = torch.tensor([data.draw(st.lists(st.booleans(), min_size=N, max_size=N)) for _ in range(2)])
    if data.draw(st.booleans()):
        documents = torch.tensor([data.draw(st.lists(st.integers(0, 2), min_size=N, max_size=N)) for _ in range(2)])
    masking = Masking(rule, real, documents)
    keys = data.draw(st.integers(0, N - 1)), N
    queries = data.draw(st.integers(0, N - 1)), N
    tile, ranges = masking.tile(queries, keys, CPU), masking.key_ranges(queries, keys, CPU)
    columns = torch.arange(tile.shape[2])
    if ranges is None:
        assert masking.per_sequence
        return
    first, last = (t[..., None] for t in ranges)
    assert torch.equal((first <= columns) & (columns < last), tile)


def test_documents_in_one_piece_and_padding_at_the_ends_are_ranges():
    rule = Visibility("virtual", 3, 2)
    whole, split = torch.tensor([[5, 5, 2, 2, 9]]), torch.tensor([[5, 2, 5, 2, 9]])
    left, hole = torch.tensor([[False, False, True, True, True]]), torch.tensor([[True, False, True, True, True]])
    for masking, expected in (
        (Masking(rule), True), (Masking(rule, None, whole), True), (Masking(rule, left), True),
        (Masking(rule, left, whole), True), (Masking(rule, None, split), False), (Masking(rule, hole), False),
    ):  # fmt: skip
        assert (masking.key_ranges((0, 5), (0, 5), CPU) is not None) == expected
