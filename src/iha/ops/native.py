"""C++ files of this package, compiled by the machine's own compiler when first used, and kept for later processes."""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from torch import Tensor


def compiler() -> str | None:
    """The C++ compiler that would be used."""
    return shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")


@functools.cache
def library(source: Path, flags: tuple[str, ...] = (), **constants: int) -> ctypes.CDLL:
    """The file compiled for this machine, with `constants` as macros. Raises a ValueError that says what failed."""
    cc = compiler()
    if cc is None:
        raise ValueError(f"{source.name} needs a C++ compiler (c++ or g++)")
    defines = [f"-D{name}={value}" for name, value in constants.items()]
    flags = ("-O3", "-march=native", "-fPIC", *flags, *defines)
    version = _run([cc, "--version"])
    key = hashlib.sha256(repr((source.read_text(), flags, version, os.uname())).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "iha"
    made = cache / "-".join([source.stem, *map(str, constants.values()), f"{key}.so"])
    try:
        if not made.exists():
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as room:
                compiled, linked = Path(room) / "kernels.o", Path(room) / "kernels.so"
                _run([cc, *flags, "-c", str(source), "-o", str(compiled)])
                # Linked without -ffast-math, which would switch off denormal numbers in the whole process. With OpenMP,
                # the libgomp that torch has loaded is taken, by its name: one pool of threads.
                openmp = ["-fopenmp"] if "-fopenmp" in flags else []
                _run([cc, "-shared", str(compiled), "-o", str(linked), *openmp, "-lm"])
                os.replace(linked, made)
        return ctypes.CDLL(str(made))
    except OSError as error:  # nowhere to write, or not loadable
        raise ValueError(f"{source.name}: {error}") from error


def pointer(t: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if t is None else t.data_ptr())


def _run(command: list[str]) -> str:
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode:
        raise ValueError(f"{' '.join(command[:3])} ... failed: {found.stderr.strip()[-400:]}")
    return found.stdout
