"""C++ files of this package, compiled by the machine's own compiler when first used, and kept for later processes."""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor

from iha.ops.backends.case import in_forward_mode

ENABLED = os.environ.get("IHA_NATIVE", "1") != "0"  # IHA_NATIVE=0 leaves all work to torch
_OWN = (Tensor, torch.nn.Parameter)
_HEADERS = Path(__file__).with_name("vectors.h")


def compiler() -> str | None:
    """The C++ compiler that would be used."""
    return shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")


def is_plain(*tensors: Tensor) -> bool:
    """Whether memory of these tensors may be read directly: float32 on CPU, and nobody watches torch's operations.

    Autograd, transforms, tracing, compilation and modes (a FLOP counter, fake tensors) must see torch's own.
    """
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or torch._C._len_torch_dispatch_stack():
        return False
    if in_forward_mode() or torch._C._functorch.peek_interpreter_stack() is not None or torch._C._get_tracing_state():
        return False
    return all(type(t) in _OWN and t.dtype == torch.float32 and t.is_cpu for t in tensors)


@functools.cache
def kernels(source: Path, D: int) -> ctypes.CDLL | None:
    """The kernels for heads of width D; None where they are switched off or (with one warning) cannot be compiled."""
    if not ENABLED:
        return None
    try:
        return library(source, ("-fopenmp",), D=D)
    except ValueError as error:  # slower, not wrong: a forward goes on
        warnings.warn(f"torch's own kernels take the place of {source.name}: {error}", stacklevel=3)
        return None


@functools.cache
def library(source: Path, flags: tuple[str, ...] = (), **constants: int) -> ctypes.CDLL:
    """The file compiled for this machine, with `constants` as macros. Raises a ValueError that says what failed."""
    cc = compiler()
    if cc is None:
        raise ValueError(f"{source.name} needs a C++ compiler (c++ or g++)")
    defines = [f"-D{name}={value}" for name, value in constants.items()]
    flags = ("-O3", "-march=native", "-fPIC", f"-I{_HEADERS.parent}", *flags, *defines)
    # All that the compiler knows of itself and of this processor: a home may be shared by machines that differ.
    machine = _run([cc, "-march=native", "-dM", "-E", "-x", "c++", os.devnull])
    texts = [path.read_text() for path in (source, _HEADERS, *sorted(source.parent.glob("*.hpp")))]
    key = hashlib.sha256(repr((texts, flags, machine)).encode()).hexdigest()[:16]
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
