"""Float32 products by oneDNN: chosen only where they stay float32. In processes of their own: the choice stays."""

import os
import subprocess
import sys

import pytest
import torch

from iha.ops import products

ERRORS = """
import torch
from iha.ops.products import choose_products

torch.manual_seed(0)
a, b = torch.randn(300, 700), torch.randn(700, 200)
want = a.double() @ b.double()
before = (a @ b - want).abs().max()
name = choose_products()
x, y = torch.randn(3, 65, 130), torch.randn(3, 130, 64)
batched = (torch.bmm(x, y) - torch.bmm(x.double(), y.double())).abs().max()
print(name, float(before), float((a @ b - want).abs().max()), float(batched))
"""


def chosen(**environment: str) -> tuple[str, float, float, float]:
    env = {**os.environ, **environment}
    run = subprocess.run([sys.executable, "-c", ERRORS], capture_output=True, text=True, check=True, env=env)
    name, *errors = run.stdout.split()
    return name, *map(float, errors)  # type: ignore[return-value]


def test_products_stay_float32() -> None:
    """bfloat16 would be wrong in the third digit: 0.1 in sums of this length."""
    name, before, after, batched = chosen(IHA_PRODUCTS="auto")
    assert name in ("onednn", "torch")
    assert max(before, after, batched) < 3e-4


def test_the_environment_leaves_them_as_they_were() -> None:
    name, before, after, _ = chosen(IHA_PRODUCTS="torch")
    assert (name, after) == ("torch", before)


@pytest.mark.parametrize("exact", [True, False])
def test_products_that_lose_digits_are_not_chosen(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "ENABLED", True)
    monkeypatch.setattr(products, "_suits_processor", lambda: True)
    monkeypatch.setattr(products, "_is_exact", lambda: exact)
    setting = torch.backends.mkldnn.matmul
    before = setting.fp32_precision
    try:
        assert products.choose_products.__wrapped__() == ("onednn" if exact else "torch")
        assert setting.fp32_precision == ("bf16" if exact else before)
    finally:
        setting.fp32_precision = before


def test_rounded_operands_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert products._is_exact()
    product = torch.Tensor.__matmul__
    rounded = lambda a, b: product(a.bfloat16().to(a.dtype), b)  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: (rounded if a.is_floating_point() else product)(a, b))
    assert not products._is_exact()
