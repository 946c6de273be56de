"""Imports point one way, downwards: docs/architecture.md."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "iha"
FLOORS = (
    ("ops",),
    ("layers",),
    ("models", "convert", "tasks", "accounting"),
    ("train", "theory"),
    ("report",),
    ("cli",),
)
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def rooms_imported_by(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("iha.")} & set(FLOOR)


def test_every_room_has_its_floor():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(FLOOR)


@pytest.mark.parametrize("room", FLOOR)
def test_no_room_imports_from_a_floor_above(room):
    upwards = {
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in (PACKAGE / room).rglob("*.py")
        for other in rooms_imported_by(path)
        if FLOOR[other] > FLOOR[room]
    }
    assert not upwards
