"""A mapping from a YAML file read into nested dataclasses. Every error names the file, the key and the reason."""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import yaml

T = TypeVar("T")
_LARGEST = 10**15  # anything larger is taken for a mistake


class _Loader(yaml.SafeLoader):
    """PyYAML (YAML 1.1) reads 8e-4 as a string, but learning rates are written like that."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)([eE][-+]?[0-9]+)$"),
    list("-+0123456789."),
)


def parse_yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # a subclass of SafeLoader: builds no objects
    except yaml.YAMLError as error:
        raise ValueError(f"{where}: not YAML: {error}") from error


def override(settings: dict[str, Any], assignment: str) -> None:
    """`a.b=value` or `a.0.b=value`, the value read as YAML, set in place."""
    path, separator, text = assignment.partition("=")
    if not separator or not path:
        raise ValueError(f"an override is key.path=value, got {assignment!r}")
    keys = path.split(".")
    place: Any = settings
    for depth, key in enumerate(keys[:-1]):
        if isinstance(place, list):
            place = place[_index(place, key, assignment)]
            continue
        if place.get(key) is None:
            place[key] = {}
        place = place[key]
        if not isinstance(place, dict | list):
            raise ValueError(f"override {assignment!r}: {'.'.join(keys[: depth + 1])} is a value, not a section")
    value = parse_yaml(text, f"override {assignment!r}")
    if isinstance(place, list):
        place[_index(place, keys[-1], assignment)] = value
    else:
        place[keys[-1]] = value


def build(cls: type[T], settings: Any, where: str, path: str = "") -> T:
    """An instance of the dataclass `cls`; nested dataclasses, lists of them, and checked types."""
    if settings is None:
        settings = {}
    if not isinstance(settings, Mapping):
        raise ValueError(f"{where}: {path or 'the file'} must be a section with keys, got {settings!r}")
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in settings:
        if key not in known:
            raise ValueError(f"{where}: {_join(path, key)}: no such key; there are {', '.join(known)}")
    values = {key: convert(hints[key], value, where, _join(path, key)) for key, value in settings.items()}
    required = [f.name for f in known.values() if f.default is f.default_factory is dataclasses.MISSING]
    if missing := [name for name in required if name not in values]:
        raise ValueError(f"{where}: {_join(path, missing[0])}: must be given")
    try:
        return cls(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {path + ': ' if path else ''}{error}") from error


def convert(kind: Any, value: Any, where: str, path: str) -> Any:
    """`value` as the annotated type, or ValueError. An int is accepted as a float; nothing else is converted."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        kind = next(argument for argument in arguments if argument is not type(None))
        return convert(kind, value, where, path)
    if kind is Any:
        return value
    if origin is typing.Literal:
        if value not in arguments:
            raise ValueError(f"{where}: {path}: must be one of {', '.join(map(str, arguments))}, got {value!r}")
        return value
    if dataclasses.is_dataclass(kind):
        return build(kind, value, where, path)  # type: ignore[arg-type]
    if origin is list:
        if not isinstance(value, list):
            raise ValueError(f"{where}: {path}: must be a list, got {value!r}")
        return [convert(arguments[0], item, where, f"{path}.{index}") for index, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{where}: {path}: must be a section with keys, got {value!r}")
        return value
    if not isinstance(value, (int, float) if kind is float else kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{where}: {path}: must be {kind.__name__}, got {value!r}")
    if kind in (int, float) and not (math.isfinite(value) and abs(value) <= _LARGEST):
        raise ValueError(f"{where}: {path}: must be a finite number of at most {_LARGEST:.0e}, got {value!r}")
    return float(value) if kind is float else value


def differences(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> list[tuple[str, Any, Any]]:
    """(key path, value in one, value in the other) of everything that differs."""
    found = []
    for key in sorted({*one, *other}):
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, _join(path, key))
        elif a != b:
            found.append((_join(path, key), a, b))
    return found


def _index(place: list[Any], key: str, assignment: str) -> int:
    if not key.isdigit() or int(key) >= len(place):
        raise ValueError(f"override {assignment!r}: {key!r} is no index of a list of {len(place)}")
    return int(key)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else str(key)
