"""Where a result was made: processor, versions, commit, load and memory. No name, address or path."""

import os
import platform
import resource
import subprocess
import sys
from importlib import metadata
from pathlib import Path

_PACKAGES = ("iha", "torch", "numpy", "transformers", "lm-eval", "math-verify")


def describe_machine() -> dict[str, object]:
    """What a reader needs to repeat a measurement."""
    import torch

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "memory_bytes": physical_bytes(),
        "load_average": load_average(),
        "products": _products(),
        "onednn_max_cpu_isa": os.environ.get("ONEDNN_MAX_CPU_ISA"),
        # Settings of malloc: they decide whether large tensors are paged in anew at every step.
        "malloc": {name: value for name, value in sorted(os.environ.items()) if name.startswith("MALLOC_")},
    }


def _products() -> str:
    """The library of float32 products on CPU (iha.ops.products)."""
    import torch

    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    return "onednn" if matmul.fp32_precision == "bf16" else "torch"


def describe_versions() -> dict[str, str]:
    """Python and those installed packages that can change a number."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def commit() -> str | None:
    """The commit of the source tree this package runs from, "+changes" when it has uncommitted ones.

    None when the package was installed without its repository.
    """
    source = Path(__file__).resolve().parents[3]
    if not (source / ".git").exists():
        return None
    command = ["git", "-C", str(source)]
    try:
        revision = subprocess.run([*command, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run(
            [*command, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return revision.stdout.strip() + ("+changes" if changes.stdout.strip() else "")


def load_average() -> float | None:
    """Load average: processes that were ready to run over the last minute, this one included. None if unavailable."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def physical_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_bytes() -> int:
    """Memory that this process can still allocate: the smaller of the kernel's available memory and total memory."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return physical_bytes()  # not Linux
    return min(physical_bytes(), kilobytes * 1024)


def peak_bytes() -> int:
    """The largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def require_bytes(needed: int, what: str, share: float = 0.8) -> None:
    """ValueError when a request exceeds this share of available memory, before anything is allocated."""
    available = available_bytes()
    if needed > share * available:
        raise ValueError(
            f"{what} needs about {needed:,} bytes ({needed / 2**30:,.1f} GiB); "
            f"{available:,} bytes are available and at most {share:.0%} of them are used"
        )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
