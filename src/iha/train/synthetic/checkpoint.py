"""Files that are whole or not there: a kill at any moment leaves the last complete state."""

import io
import json
import os
from pathlib import Path
from typing import Any

import torch


def write_bytes(path: Path, content: bytes) -> None:
    """Written beside and renamed over: a reader never sees half a file, and a kill leaves the old one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_json(path: Path, content: object) -> None:
    write_bytes(path, (json.dumps(content, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not readable JSON: {error}") from error


def save_state(path: Path, state: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_bytes(path, buffer.getvalue())


def load_state(path: Path) -> dict[str, Any]:
    """A file that `save_state` wrote here. Tensors and plain data only (`weights_only`): should it be another's, it can
    run no code. Not safetensors, for the optimiser's state is nested and `iha synth` needs torch alone."""
    return torch.load(path, weights_only=True, map_location="cpu")


def remove_leftovers(directory: Path) -> None:
    """Half-written files of killed processes."""
    for leftover in directory.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)
