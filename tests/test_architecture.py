"""The house as docs/architecture.md draws it: imports point downwards, and rooms keep to themselves."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "iha"
FLOORS = (  # from the ground up
    ("records",),
    ("ops",),
    ("layers", "accounting"),
    ("models", "convert"),
    ("train", "evaluate", "theory", "synthetic", "bench"),
    ("experiment",),
    ("report",),
    ("reproduce",),
    ("cli",),
)
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
# Rooms on one floor do not know each other, with these exceptions. All arrows of a pair point one way.
SIDEWAYS = {
    ("accounting", "layers"),  # accounting adds up what layers say of themselves
    ("convert", "models"),
    ("bench", "evaluate"),  # what evaluating costs beyond generating
    ("bench", "train"),  # the trainer beside a bare loop
    ("theory", "evaluate"),  # the paper's tables
    ("theory", "synthetic"),  # the definitions of CPM-3 and of the polynomial filter
}
DRAWING = {"rich", "matplotlib"}
TESTS = Path(__file__).parent
# Tests beneath a room that no single source file owns.
CROSS_CUTTING = {
    "cli/test_bad_input.py": "bad input of all commands that compute",
    "cli/test_bad_runs.py": "bad input of all commands that train, evaluate and report",
    "layers/test_dropout.py": "one option of several layers",
    "layers/test_output_side.py": "two options of every layer",
    "models/test_bitsandbytes.py": "another project's quantisation",
    "models/test_compiled.py": "torch.compile of the whole model",
    "models/test_hugging_face.py": "transformers' own test suite",
    "models/test_interop.py": "peft, trl and other projects",
    "models/test_lm_eval.py": "lm-eval's own model class",
    "models/test_save_load.py": "files between several processes and classes, remote code included",
    "ops/test_dropout.py": "one option of several operators",
    "ops/test_fuzz.py": "random calls of all backends",
    "ops/test_mechanisms.py": "every mechanism's operator against its definition",
    "ops/test_transforms.py": "vmap, jvp, export and compile of the operators",
    "report/page/test_browser.py": "the whole page in a browser",
    "theory/test_related_work.py": "what the paper says of other mechanisms",
    "train/test_processes.py": "whole runs on several real processes",
    "train/test_resume.py": "whole runs that are killed, stopped and damaged",
}


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """Full dotted names: `from a.b import c` is a.b.c."""
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.relative_to(PACKAGE)}: a relative import hides the room it comes from"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def rooms_imported_by(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("iha.")} & set(FLOOR)


def private_names_used(path: Path, room: str) -> Iterator[str]:
    """`from iha.other.module import _x`, and `module._x` of an imported module of another room."""
    foreign = set()
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("iha."):
            if node.module.split(".")[1] == room:  # type: ignore[union-attr]
                continue
            for alias in node.names:
                foreign.add(alias.asname or alias.name)
                if any(_is_private(part) for part in f"{node.module}.{alias.name}".split(".")):
                    yield f"{node.module}.{alias.name}"
    for node in ast.walk(syntax(path)):
        attribute = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if attribute and node.value.id in foreign and _is_private(node.attr):
            yield f"{node.value.id}.{node.attr}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def files(room: str) -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


def test_every_room_has_its_floor():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} <= set(FLOOR)


@pytest.mark.parametrize("room", FLOOR)
def test_no_room_imports_from_a_floor_above(room):
    upwards = {
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in files(room)
        for other in rooms_imported_by(path)
        if FLOOR[other] > FLOOR[room]
    }
    assert not upwards


@pytest.mark.parametrize("room", FLOOR)
def test_rooms_of_one_floor_know_each_other_one_way_only(room):
    sideways = {
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in files(room)
        for other in rooms_imported_by(path) - {room}
        if FLOOR[other] == FLOOR[room] and (room, other) not in SIDEWAYS
    }  # fmt: skip
    assert not sideways


@pytest.mark.parametrize("room", FLOOR)
def test_nothing_private_crosses_a_room(room):
    pried = {f"{path.relative_to(PACKAGE)}: {name}" for path in files(room) for name in private_names_used(path, room)}
    assert not pried


@pytest.mark.parametrize("room", FLOOR)
def test_imports_are_written_where_a_reader_sees_them(room):
    """No modules loaded by a string; the lazy names of `iha/__init__.py` are the one exception, and no room's."""
    hidden = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in files(room)
        for name in imports(path)
        if name.split(".")[0] == "importlib" and name.endswith("import_module")
    }
    assert not hidden


@pytest.mark.parametrize("room", FLOOR)
def test_only_the_report_and_the_command_line_draw(room):
    drawn = {
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in files(room)
        for name in imports(path)
        if name.split(".")[0] in DRAWING and path != PACKAGE / "records" / "table.py"
    }
    assert not drawn or room in {"report", "cli"}, drawn


@pytest.mark.parametrize("room", [room for room in FLOOR if room != "cli"])
def test_only_the_command_line_reads_the_command_line(room):
    readers = {
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in files(room)
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.Attribute) and node.attr == "argv" and ast.unparse(node.value) == "sys"
    } | {str(path.relative_to(PACKAGE)) for path in files(room) if "argparse" in set(imports(path))}
    assert not readers


@pytest.mark.parametrize("room", [room for room in FLOOR if room != "cli"])
def test_no_room_goes_through_the_front_door(room):
    """`from iha import x` would hide which room x is in. The front door is for users, and for the commands."""
    bare = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in files(room)
        for name in imports(path)
        if name == "iha" or (name.startswith("iha.") and name.count(".") == 1 and name.split(".")[1] not in FLOOR)
    }
    assert not {entry for entry in bare if not entry.endswith(("iha.version", "iha.__version__"))}


def says_something(path: Path) -> bool:
    """Whether a file has code to test: a function or a class. `__init__.py` and `__main__.py` only lead elsewhere."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return not path.name.startswith("__") and any(isinstance(node, kinds) for node in ast.walk(syntax(path)))


@pytest.mark.parametrize("room", FLOOR)
def test_every_source_file_has_its_test_file(room):
    """src/iha/a/b.py is tested by tests/a/test_b.py; the rule for files without code is `says_something`."""
    wanted = {path.relative_to(PACKAGE).with_name(f"test_{path.name}") for path in files(room) if says_something(path)}
    assert not {str(path) for path in wanted if not (TESTS / path).is_file()}


@pytest.mark.parametrize("room", FLOOR)
def test_every_test_file_has_its_source_file(room):
    """Beneath a room. What is about several files of it, or about other projects, is named in CROSS_CUTTING."""
    orphans = set()
    for path in sorted((TESTS / room).rglob("test_*.py")):
        name = path.relative_to(TESTS)
        source = PACKAGE / name.with_name(name.name.removeprefix("test_"))
        if not source.is_file() and str(name) not in CROSS_CUTTING:
            orphans.add(str(name))
    assert not orphans
