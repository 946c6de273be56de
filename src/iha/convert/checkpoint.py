"""Checkpoints as files: reading headers before tensors, one shard in memory at a time, all or nothing on disk."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint directory whose headers have been read and found whole."""

    directory: Path
    config: dict[str, Any]
    shards: dict[str, dict[str, tuple[int, ...]]]  # file name to tensor name to shape

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: shape for shard in self.shards.values() for name, shape in shard.items()}

    def load(self, shard: str) -> dict[str, Tensor]:
        from safetensors.torch import load_file

        return load_file(self.directory / shard)


def open_checkpoint(source: str | os.PathLike) -> Checkpoint:
    """A local directory, or the name of a repository on the Hub. Raises ValueError for anything broken."""
    directory = Path(source)
    if not directory.is_dir():
        if directory.exists() or str(source).count("/") != 1 or str(source).startswith((".", "/", "~")):
            raise ValueError(f"no checkpoint directory {str(source)!r}")
        from huggingface_hub import snapshot_download

        patterns = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]
        directory = Path(snapshot_download(str(source), allow_patterns=patterns))
    config_path = directory / "config.json"
    if not config_path.is_file():
        raise ValueError(f"{directory} has no config.json")
    config = _json(config_path)
    if (directory / _INDEX).is_file():
        weight_map = _json(directory / _INDEX).get("weight_map", {})
        files = sorted(set(weight_map.values()))
    elif (directory / _SINGLE).is_file():
        weight_map, files = {}, [_SINGLE]
    else:
        raise ValueError(f"{directory} has neither {_SINGLE} nor {_INDEX}; only safetensors are read")
    shards = {name: _header(directory / name) for name in files}
    for tensor, name in weight_map.items():
        if tensor not in shards[name]:
            raise ValueError(f"{name} does not hold {tensor}, which {_INDEX} says it does")
    return Checkpoint(directory, config, shards)


def check_shapes(found: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]], tied: bool) -> None:
    """Raise ValueError for tensors that are missing, unknown or of another shape."""
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


@contextmanager
def complete_or_absent(destination: str | os.PathLike) -> Iterator[Path]:
    """A directory to write into that becomes `destination` at the end, or disappears if anything goes wrong."""
    destination = Path(destination)
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise ValueError(f"the destination {destination} exists and is not an empty directory")
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".partial", dir=destination.parent))
    try:
        yield partial
        partial.chmod(0o755)  # mkdtemp's is private
        for path in partial.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        if destination.exists():
            destination.rmdir()
        partial.rename(destination)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def write_shards(directory: Path, shards: Iterator[tuple[str, dict[str, Tensor]]]) -> None:
    """Each shard as it comes, and the index if there are several."""
    from safetensors.torch import save_file

    weight_map: dict[str, str] = {}
    total = 0
    for name, tensors in shards:
        save_file({k: t.contiguous() for k, t in tensors.items()}, directory / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
        total += sum(t.numel() * t.element_size() for t in tensors.values())
    if set(weight_map.values()) != {_SINGLE}:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (directory / _INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def copy_companions(source: Path, destination: Path) -> None:
    """Tokenizer, chat template, generation settings: what is neither weights nor configuration nor code."""
    for path in source.iterdir():
        weights = path.suffix in (".safetensors", ".bin", ".pt", ".pth", ".gguf") or path.name.endswith(".index.json")
        if path.is_file() and not weights and path.suffix != ".py" and path.name != "config.json":
            shutil.copyfile(path, destination / path.name)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def _header(path: Path) -> dict[str, tuple[int, ...]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ValueError(f"{path} is missing")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error
