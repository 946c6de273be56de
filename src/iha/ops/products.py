"""Float32 matrix products on CPU by the faster of the two libraries that torch carries.

torch calls MKL, which keeps its AVX-512 kernels for Intel's processors. oneDNN has them for all, and is 2.2 times as
fast where vectors of 512 bits are executed whole (docs/lab-notes.md). torch passes float32 products to oneDNN only with
the permission to round them to bfloat16. oneDNN makes use of that permission on AMX alone, so elsewhere it costs
nothing; a product that tells the difference is computed before the choice is kept.
"""

import functools
import os

import torch

ENABLED = os.environ.get("IHA_PRODUCTS", "auto") == "auto"  # IHA_PRODUCTS=torch leaves products as torch has them


@functools.cache
def choose_products() -> str:
    """From now on the process has its float32 products on CPU by what is returned: "onednn", or "torch" as before."""
    if not (ENABLED and _suits_processor()):
        return "torch"
    setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before, setting.fp32_precision = setting.fp32_precision, "bf16"
    if _is_exact():
        return "onednn"
    setting.fp32_precision = before
    return "torch"


def _suits_processor() -> bool:
    """AVX-512, and not Intel's."""
    if not torch.backends.mkldnn.is_available() or "AVX512" not in torch.backends.cpu.get_cpu_capability():
        return False
    try:
        with open("/proc/cpuinfo") as facts:
            return not any(line.startswith("vendor_id") and "GenuineIntel" in line for line in facts)
    except OSError:
        return False


def _is_exact() -> bool:
    """Whether products keep what bfloat16 would lose: integers below 2^12, whose sums float32 holds exactly."""
    generator = torch.Generator().manual_seed(0)
    for m, k, n in ((64, 32, 64), (512, 128, 512), (33, 257, 130)):
        a, b = (torch.randint(-1023, 1024, shape, generator=generator) for shape in ((m, k), (k, n)))
        b = b.sign() * (b.abs() % 16)  # sums stay below 2^24
        if not torch.equal(a.float() @ b.float(), (a @ b).float()):
            return False
    return True
