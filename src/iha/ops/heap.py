"""Memory that a process frees stays with the process.

torch allocates and frees tensors of many megabytes at every step. glibc returns such memory to the kernel at once, and
the next step pages it in anew, zeroed: on CPU up to half of the time of an attention forward.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of glibc's malloc.h
_NEVER, _PAD = -1, 64 << 20


def keep_memory() -> bool:
    """From now on keep freed memory for later tensors; False where the C library is not glibc, and nothing changes.

    The process then holds its peak until it ends. The setting is the process's own, so all that runs in it is alike.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):  # musl has no such settings
        return False
    # Large blocks come from the heap and not from mappings of their own; the heap grows in steps and never shrinks.
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_TOP_PAD, _PAD))
    return all(libc.mallopt(name, value) == 1 for name, value in settings)
