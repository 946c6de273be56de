"""Refuse what would not fit, before anything is allocated, and say how many bytes it would take."""

import os
from pathlib import Path


def available_bytes() -> int:
    """Memory this process may still take: the smaller of what the kernel says is available and what is physical."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return physical  # not Linux
    return min(physical, kilobytes * 1024)


def require(bytes_needed: int, what: str, share: float = 0.8) -> None:
    """Raise ValueError when `what` needs more than this share of the available memory."""
    available = available_bytes()
    if bytes_needed > share * available:
        raise ValueError(
            f"{what} needs about {bytes_needed:,} bytes ({bytes_needed / 2**30:,.1f} GiB); "
            f"{available:,} bytes are available and at most {share:.0%} of them are used"
        )
