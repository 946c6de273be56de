"""Reading checkpoint files as untrusted input: headers before tensors, one shard in memory at a time.

Nothing outside the checkpoint's directory is read, even if its index or a link points there.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_FLOATING = ("F64", "F32", "F16", "BF16")
_LONGEST_JSON = 2**28  # bytes; the index of a model with a million tensors takes half of that


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint directory whose headers have been read and are consistent."""

    directory: Path
    config: dict[str, Any]
    shards: dict[str, dict[str, tuple[int, ...]]]  # file name to tensor name to shape
    companions: tuple[str, ...]  # tokenizer, chat template, generation settings: not weights, configuration or code

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: shape for shard in self.shards.values() for name, shape in shard.items()}

    @property
    def num_bytes(self) -> int:
        return sum((self.directory / name).stat().st_size for name in (*self.shards, *self.companions))

    def load(self, shard: str) -> dict[str, Tensor]:
        from safetensors.torch import load_file

        return load_file(self.directory / shard)


def open_checkpoint(source: str | os.PathLike) -> Checkpoint:
    """Open a local directory or a repository on the Hub, given by name. Raises ValueError for anything broken."""
    directory = _directory(source)
    if not (directory / "config.json").is_file():
        raise ValueError(f"{directory} has no config.json")
    config = _json(directory, "config.json")
    weight_map: dict[str, str] = {}
    if (directory / INDEX).is_file():
        weight_map = _weight_map(directory)
        files = sorted(set(weight_map.values()))
    elif (directory / SINGLE).is_file():
        files = [SINGLE]
    else:
        raise ValueError(f"{directory} has neither {SINGLE} nor {INDEX}; only safetensors are read")
    shards = {name: _header(_inside(directory, name)) for name in files}
    for tensor, name in weight_map.items():
        if tensor not in shards[name]:
            raise ValueError(f"{name} does not hold {tensor}, which {INDEX} says it does")
    _check_held_once(shards)
    return Checkpoint(directory, config, shards, _companions(directory))


def check_shapes(found: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]], tied: bool) -> None:
    """Raise ValueError for tensors that are missing, unknown or of the wrong shape."""
    optional = {"lm_head.weight"} if tied else set()
    if missing := sorted(set(expected) - set(found) - optional):
        raise ValueError(f"the checkpoint lacks {len(missing)} tensors, among them {', '.join(missing[:3])}")
    foreign = [name for name in found if name not in expected and not name.endswith("rotary_emb.inv_freq")]
    if foreign := sorted(set(foreign) - optional):
        raise ValueError(f"the checkpoint has {len(foreign)} unknown tensors, among them {', '.join(foreign[:3])}")
    for name, shape in expected.items():
        if name in found and found[name] != shape:
            hint = " (vocab_size in config.json?)" if "embed_tokens" in name or "lm_head" in name else ""
            raise ValueError(f"{name} has shape {found[name]}, its config.json asks for {shape}{hint}")


def check_depth(checkpoint: Checkpoint) -> None:
    """Refuse a config.json with more layers than tensors, before a model is built from it."""
    layers, tensors = checkpoint.config.get("num_hidden_layers"), len(checkpoint.shapes)
    if not isinstance(layers, int) or isinstance(layers, bool) or not 1 <= layers <= tensors:
        raise ValueError(f"config.json asks for {layers!r} layers, the checkpoint has {tensors} tensors")


@contextmanager
def interpreting(what: str) -> Iterator[None]:
    """Turn any error of `transformers` while interpreting a file into a ValueError that names the file."""
    try:
        yield
    except (ValueError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(f"{what} cannot be used: {type(error).__name__}: {error}") from error


def _directory(source: str | os.PathLike) -> Path:
    directory = Path(source)
    if directory.is_dir():
        return directory
    if os.path.lexists(directory) or str(source).count("/") != 1 or str(source).startswith((".", "/", "~")):
        raise ValueError(f"no checkpoint directory {str(source)!r}")
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]
    try:
        return Path(snapshot_download(str(source), allow_patterns=patterns))
    except Exception as error:  # the Hub's client raises a dozen different types
        raise ValueError(f"no checkpoint directory {str(source)!r}, and the Hub has not given it: {error}") from error


def _weight_map(directory: Path) -> dict[str, str]:
    """Tensor name to shard. Shard names decide what is read and written, so they must be plain file names."""
    weight_map = _json(directory, INDEX).get("weight_map")
    if not isinstance(weight_map, dict):
        raise ValueError(f"{directory / INDEX} has no weight_map")
    for name in weight_map.values():
        plain = isinstance(name, str) and name == Path(name).name and not set(name) & set("/\\\0")
        if not plain or not name.endswith(".safetensors") or name.startswith("."):
            raise ValueError(
                f"{directory / INDEX} names the shard {name!r}: shards must be plain .safetensors file names"
            )
    return weight_map


def _inside(directory: Path, name: str) -> Path:
    """The path of a regular file in the directory. A link to a file outside it is refused.

    Exception: the Hub's cache consists of links from snapshots/<commit>/ to blobs/ next to it; these are followed.
    """
    path, home = directory / name, directory.resolve()
    target = Path(os.path.realpath(path))  # for a link to itself, Path.resolve raises RuntimeError
    roots = [home] + ([home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [])
    if not any(target.is_relative_to(root) for root in roots):
        raise ValueError(f"{path} is a link to {target}, outside the checkpoint: put the file itself there")
    if not target.is_file():
        raise ValueError(f"{path} is missing")
    return path


def _companions(directory: Path) -> tuple[str, ...]:
    names = []
    for path in sorted(directory.iterdir()):
        weights = path.suffix in (".safetensors", ".bin", ".pt", ".pth", ".gguf") or path.name.endswith(".index.json")
        if not weights and path.suffix != ".py" and path.name != "config.json" and path.is_file():
            names.append(_inside(directory, path.name).name)
    return tuple(names)


def _json(directory: Path, name: str) -> dict[str, Any]:
    path = _inside(directory, name)
    if path.stat().st_size > _LONGEST_JSON:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, more than any configuration")
    try:
        value = json.loads(path.read_text(), parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _header(path: Path) -> dict[str, tuple[int, ...]]:
    from safetensors import SafetensorError, safe_open

    shapes = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                part = file.get_slice(name)
                if part.get_dtype() not in _FLOATING:
                    raise ValueError(f"{path}: {name} is {part.get_dtype()}; weights must be {', '.join(_FLOATING)}")
                shapes[name] = tuple(part.get_shape())
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error
    return shapes


def _check_held_once(shards: dict[str, dict[str, tuple[int, ...]]]) -> None:
    home: dict[str, str] = {}
    for shard, tensors in shards.items():
        for tensor in tensors:
            if tensor in home:
                raise ValueError(f"{tensor} is in two shards, {home[tensor]} and {shard}")
            home[tensor] = shard
