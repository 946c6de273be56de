"""What the layers share in one forward: moved to another device, and read by `attend`."""

import pytest
import torch

from iha.layers.call import Call, Shared
from iha.ops.rotary import rotation_by_theta


def shared(**options: bool) -> Shared:
    rotation = rotation_by_theta(0, 5, 3, 4, 100.0, torch.float64, torch.device("cpu"))
    return Shared({3: rotation}, "sdpa", **options)


@pytest.mark.parametrize("with_weights", [False, True])
def test_a_copy_for_another_device_has_its_own_tables_and_no_masks(with_weights: bool) -> None:
    """The masks of a decoding step are on the first device; on the second they are made again."""
    here = shared(with_weights=with_weights)
    here.decoding_masks["a mask"] = torch.zeros(1)
    there = here.to("meta", non_blocking=True)
    assert {t.device.type for table in there.rotations[3] for t in table} == {"meta"}
    assert (there.backend, there.with_weights, there.decoding_masks) == ("sdpa", with_weights, {})
    assert list(here.decoding_masks) == ["a mask"]


def test_a_call_reads_its_rotation_and_what_is_shared() -> None:
    model = shared(with_weights=True)
    cos, sin = Call(model.rotations[3], "sdpa", model).pseudo_rotary
    frequency = torch.tensor([1.0, 0.1], dtype=torch.float64)  # theta^(-2d/D) = 100^(-d/2)
    angle = torch.arange(3.0, dtype=torch.float64)[:, None] * frequency
    torch.testing.assert_close(cos, angle.cos(), atol=1e-15, rtol=0)
    torch.testing.assert_close(sin, angle.sin(), atol=1e-15, rtol=0)
    assert Call(None, "sdpa", None).pseudo_rotary is None
    assert Call(None, "sdpa", model).with_weights
    assert not Call(None, "sdpa", None).with_weights
