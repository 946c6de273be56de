"""The roofline: which of arithmetic and memory is the limit."""

import pytest

from iha.accounting.gpus import GPUS, Gpu


def test_a_job_takes_as_long_as_its_slower_part():
    gpu = Gpu(flops=100.0, memory=1, bandwidth=10.0)
    assert gpu.ridge == 10
    assert gpu.seconds(flops=1000, traffic=10) == 10
    assert gpu.seconds(flops=10, traffic=1000) == 100
    assert gpu.seconds(flops=100, traffic=10) == 1  # at the ridge both take as long


def test_the_ridges_of_the_data_sheets():
    assert GPUS["h100"].ridge == pytest.approx(295, abs=1)
    assert GPUS["h200"].ridge == pytest.approx(206, abs=1)
