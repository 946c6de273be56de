"""How a command starts quickly."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """For heavy imports. They leave a million objects that live as long as the process, and while they grow Python's
    cyclic garbage collector looks at all of them again and again: about a sixth of the time to import transformers."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # nor are they looked at later
        if enabled:
            gc.enable()


def fast_training() -> None:
    """For this process, on CPU: freed memory is kept, and float32 products are by the faster library."""
    from iha.ops.heap import keep_memory
    from iha.ops.products import choose_products

    keep_memory()
    choose_products()
