"""The decoding bench: both sides decode behind as long a cache, and the window keeps its own."""

from iha.accounting import AttentionShape
from iha.bench import decoding
from iha.layers.cache import KVCache
from iha.layers.schedule import LayerSpec

SHAPE = AttentionShape(16, 2)


def test_every_case_is_measured() -> None:
    costs = list(decoding.decoding_costs(SHAPE, 48, (2, 4), window=8, rounds=3))
    assert [(cost.num_pseudo_heads, cost.window, cost.num_cached) for cost in costs] == [
        (2, None, 48), (2, 8, 48), (4, None, 48), (4, 8, 48),
    ]  # fmt: skip
    assert all(len(cost.ratios) == 3 for cost in costs)


def test_tokens_are_decoded_one_by_one_behind_the_prompt(monkeypatch) -> None:
    made = []

    class Watched(KVCache):
        def __init__(self) -> None:
            super().__init__()
            self.lengths = []
            made.append(self)

        def extended(self, k, *rest):
            self.lengths.append(k.shape[2])
            return super().extended(k, *rest)

    monkeypatch.setattr(decoding, "KVCache", Watched)
    decoding.decoder(SHAPE, LayerSpec("iha", 8, 2), 48)()
    assert made[0].lengths == [48] + [1] * decoding.TOKENS
    assert made[0].num_tokens_seen == 48 + decoding.TOKENS
    assert made[0].num_tokens_kept <= 8 + 1
