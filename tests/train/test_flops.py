"""FLOPs of a training step, against the matrices by hand and against torch's own counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from iha.models.field_checks import ATTENTIONS
from iha.models.modeling import IHAForCausalLM
from iha.train import flops
from iha.train.build import model_config
from iha.train.flops import attention_shape, forward_flops, peak_flops, schedule_of, training_flops
from iha.train.recipe import Data, Model, Recipe

CONFIG = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4,
          "num_pseudo_heads": 2, "global_every": 2, "vocab_size": 512}  # fmt: skip


def config(attention="global", context=256, **changes):
    recipe = Recipe(model=Model(attention=attention, config={**CONFIG, **changes}), data=Data(context=context))
    return model_config(recipe, 512, None)


def test_flops_are_those_of_the_matrices():
    N, E, F, V, L = 256, 64, 256, 512, 8
    matrices = L * (4 * E * E + 2 * E * F) + E * V
    pairs = N * (N + 1) // 2
    assert forward_flops(config(gated_mlp=False), N) == 2 * N * matrices + L * 4 * E * pairs
    assert forward_flops(config(gated_mlp=True), N) == 2 * N * (matrices + L * E * F) + L * 4 * E * pairs
    assert training_flops(config(), N) == 3 * forward_flops(config(), N)


@pytest.mark.parametrize("attention", ["global", "iha"])
@pytest.mark.parametrize("gate", [None, "headwise", "elementwise"])
def test_torch_counts_the_same_apart_from_attention(attention, gate):
    """The counter sees all of the matrix products; attention itself is compared in tests/accounting."""
    shape = config(attention, context=32, num_hidden_layers=2, num_key_value_heads=2, attention_gate=gate)
    tokens = torch.zeros(1, 32, dtype=torch.long)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        IHAForCausalLM(shape)(tokens, use_cache=False)
    linear = counter.get_flop_counts()["Global"][torch.ops.aten.mm]
    from iha.accounting.flops import schedule_flops

    attended = schedule_flops(attention_shape(shape), schedule_of(shape), 32)
    assert linear == forward_flops(shape, 32) - attended.attention - attended.mixing


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_the_schedule_is_the_model_s(attention):
    shape = config(attention)
    layers = IHAForCausalLM(shape).model.layers
    assert [spec.window for spec in schedule_of(shape)] == [layer.self_attn.window for layer in layers]
    if attention != "paired_heads":  # its spec says nothing of the two heads that share a layer's attention
        assert [spec.num_pseudo_heads for spec in schedule_of(shape)] == [l.self_attn.num_pseudo_heads for l in layers]


def test_a_known_gpu_s_peak_is_that_of_its_data_sheet(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    peak_flops.cache_clear()
    try:
        assert peak_flops() == 989e12
    finally:
        peak_flops.cache_clear()


def test_another_device_is_measured(monkeypatch):
    """Four products of 1024³ at 4, 3, 2 and 5 seconds: the fastest counts, two FLOPs per multiply-add."""
    ticks = iter([0, 4, 10, 13, 20, 22, 30, 35])
    monkeypatch.setattr(flops.time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    peak_flops.cache_clear()
    try:
        assert peak_flops() == 2 * 1024**3 / 2
    finally:
        peak_flops.cache_clear()
