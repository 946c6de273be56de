"""The choice of a backend. "auto" picks the best one; a named backend that cannot run the case raises an error.

The order of "auto" on CUDA, with the reasons, is in docs/backends.md.
"""

from typing import Literal, get_args

from iha.ops.backends import flash, flex
from iha.ops.backends.case import Case

Backend = Literal["auto", "reference", "sdpa", "banded", "flex", "flash"]
BACKENDS: tuple[str, ...] = get_args(Backend)
FORMULA = "formula"  # chosen by "auto" if torch must see every operation; cannot be requested by name


def choose_backend(case: Case, backend: str) -> str:
    name = _best(case) if backend == "auto" else backend
    if reason := _obstacle(name, case):
        raise ValueError(f"backend={name!r} cannot do this: {reason}")
    return name


def _best(case: Case) -> str:
    if case.needs_formula:
        return FORMULA
    if case.dropout:
        return "sdpa"
    if case.device.type == "cuda" and not case.is_plain:
        # The bounds of padding and documents are read from the masks: a compiled graph would break there.
        packs_while_compiling = case.per_sequence and case.compiling
        return "flex" if packs_while_compiling or flash.obstacle(case) is not None else "flash"
    return "sdpa" if case.visibility.window is None else "banded"


def _obstacle(name: str, case: Case) -> str | None:
    """Why this backend cannot run this case, or None."""
    window = case.visibility.window
    if name == FORMULA:
        return None
    if case.forward_mode:
        return "it has no forward-mode derivative; use 'auto' or 'reference'"
    if case.dropout and (name != "sdpa" or not case.is_plain):
        return "it cannot drop attention weights; use 'auto'"
    if case.needs_formula:
        return "an exported program cannot hold its operator; use 'auto' or 'reference'"
    if name == "sdpa" and window is not None:
        return f"window={window} is a sliding window; use 'banded', 'flex' or 'auto'"
    if name == "banded" and window is None:
        return f"no window binds {case.num_keys} tokens, there is no band; use 'sdpa' or 'auto'"
    if name == "flex":
        return flex.obstacle(case)
    if name == "flash":
        return flash.obstacle(case)
    return None
