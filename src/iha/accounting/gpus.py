"""What GPUs can do, from the vendors' data sheets (SXM modules, dense bfloat16)."""

from typing import NamedTuple


class Gpu(NamedTuple):
    flops: float  # per second
    memory: int  # bytes
    bandwidth: float  # bytes per second

    @property
    def ridge(self) -> float:
        """FLOPs per byte of memory traffic above which arithmetic is the limit, below which memory is (roofline)."""
        return self.flops / self.bandwidth

    def seconds(self, flops: float, traffic: float) -> float:
        """The roofline's lower bound for this much work: whichever takes longer, arithmetic or memory traffic."""
        return max(flops / self.flops, traffic / self.bandwidth)


GPUS: dict[str, Gpu] = {
    "a100": Gpu(312e12, 80 * 10**9, 2.039e12),
    "h100": Gpu(989e12, 80 * 10**9, 3.35e12),
    "h200": Gpu(989e12, 141 * 10**9, 4.8e12),
    "b200": Gpu(2250e12, 180 * 10**9, 8e12),
}
