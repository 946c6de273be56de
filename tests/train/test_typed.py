"""YAML into dataclasses: numbers as people write them, types as annotated, and errors with file, key and reason."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
import yaml

from iha.train.typed import build, convert, differences, override, parse_yaml


@dataclass(frozen=True)
class Inner:
    size: int
    kind: Literal["a", "b"] = "a"

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"size must not be negative, got {self.size}")


@dataclass(frozen=True)
class Outer:
    rate: float = 1.0
    limit: int | None = None
    inner: Inner = field(default_factory=lambda: Inner(1))
    many: list[Inner] = field(default_factory=list)
    free: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize("text", ["8e-4", "1e3", "-2.5E+2", ".5e1", "3.e2", "1_000e1"])
def test_numbers_with_exponents_are_numbers(text):
    assert isinstance(yaml.safe_load("8e-4"), str)  # why there is a loader of our own
    assert parse_yaml(text, "here") == float(text)


@pytest.mark.parametrize("text", ["e4", "1e", "0x1e", "1e4k", "a1e4"])
def test_what_only_looks_like_one_is_as_yaml_has_it(text):
    assert parse_yaml(text, "here") == yaml.safe_load(text)


def test_nested_settings_are_built():
    found = build(Outer, {"rate": 2, "inner": {"size": 3}, "many": [{"size": 0, "kind": "b"}], "free": {"x": [1]}}, "f")
    assert found == Outer(2.0, None, Inner(3), [Inner(0, "b")], {"x": [1]})
    assert isinstance(found.rate, float)
    assert build(Outer, None, "f") == Outer()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inner": {"size": -1}}, "f: inner: size must not be negative, got -1"),
        ({"many": [{"size": 1}, {"size": 1, "kind": "c"}]}, "f: many.1.kind: must be one of a, b, got 'c'"),
        ({"inner": {}}, "f: inner.size: must be given"),
        ({"inner": 3}, "f: inner must be a section with keys, got 3"),
        ({"free": 3}, "f: free: must be a section with keys, got 3"),
        ({"limit": 1.5}, "f: limit: must be int, got 1.5"),
        ({"rate": "fast"}, "f: rate: must be float, got 'fast'"),
        ({"rate": True}, "f: rate: must be float, got True"),
        ({"unknown": 1}, "f: unknown: no such key; there are rate, limit, inner, many, free"),
        ([1], "f: the file must be a section with keys, got [1]"),
    ],
)
def test_errors_name_file_key_and_reason(settings, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build(Outer, settings, "f")


def test_only_a_whole_number_becomes_a_float():
    assert convert(float | None, 3, "f", "x") == 3.0
    assert convert(float | None, None, "f", "x") is None
    with pytest.raises(ValueError, match="must be int, got '3'"):
        convert(int, "3", "f", "x")


def test_overrides_are_set_in_place_and_make_their_sections():
    settings = {"a": {"b": 1}, "list": [{"c": 1}, 2], "empty": None}
    for assignment in ("a.b=5e-1", "new.deep.key=[1, 2]", "list.0.c=null", "list.1=x=y", "empty.k=true"):
        override(settings, assignment)
    assert settings == {
        "a": {"b": 0.5}, "list": [{"c": None}, "x=y"], "empty": {"k": True}, "new": {"deep": {"key": [1, 2]}},
    }  # fmt: skip


def test_differences_are_named_by_their_path():
    one = {"a": {"b": 1, "c": [1]}, "only": 2}
    other = {"a": {"b": 1, "c": [2]}, "new": {"x": 3}}
    assert differences(one, other) == [("a.c", [1], [2]), ("new", None, {"x": 3}), ("only", 2, None)]
    assert differences(one, one) == []
