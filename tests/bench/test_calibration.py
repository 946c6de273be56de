"""Layers are timed as the model has them, in turns with multi-head attention; the times themselves are not tested."""

import pytest
import torch

from iha.accounting import AttentionShape, layer_parameters
from iha.bench import calibration
from iha.bench.calibration import Calibration, built
from iha.bench.measure import Times
from iha.layers.schedule import LayerSpec

SHAPE = AttentionShape(16, 4, 2, causal="token", collapse="full", bias=True, gate="headwise")
SPECS = (LayerSpec(), LayerSpec("iha", 4, 2, 1), LayerSpec("iha", None, 1), LayerSpec("differential"))


def test_every_layer_in_units_of_multi_head_attention(monkeypatch) -> None:
    """With a clock that says 3 seconds of every layer and 2 of multi-head attention."""
    ran = []

    def turns(sides, rounds):
        ran.append({name: run().shape for name, run in sides.items()})
        return Times({"this": [3.0] * rounds, "multihead": [2.0] * rounds})

    monkeypatch.setattr(calibration, "take_turns", turns)
    calibrate = Calibration(num_tokens=8, rounds=3)
    found = calibrate(SHAPE, SPECS)
    assert found == {SPECS[0]: 1.0, SPECS[1]: 1.5, SPECS[2]: 1.5, SPECS[3]: 1.5}
    assert ran == [{"this": (1, 8, 16), "multihead": (1, 8, 16)}] * 4
    assert calibrate.quiet.largest_spread == 0.0


def test_real_times_are_positive_and_layers_are_those_of_the_model() -> None:
    found = Calibration(num_tokens=8, rounds=1)(SHAPE, SPECS)
    assert all(time > 0 for time in found.values())
    for spec in SPECS:
        layer = built(SHAPE, spec)
        assert sum(p.numel() for p in layer.parameters()) == layer_parameters(SHAPE, spec).total
        assert all(torch.isfinite(p).all() for p in layer.parameters())
    with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
        Calibration(num_tokens=8, rounds=0)
