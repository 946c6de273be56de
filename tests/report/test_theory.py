"""Every picture of the gallery is drawn, from numbers alone, alike every time."""

import pytest

from iha.records import Record
from iha.report.theory import draw
from iha.theory.gallery import PICTURES, gallery
from iha.theory.verify import CHECKS

pytest.importorskip("matplotlib")


def test_all_pictures_as_png_and_svg_with_the_same_bytes_twice(tmp_path) -> None:
    results = {"gallery": gallery(tuple(CHECKS))}
    record = Record("verify", "iha verify", {}, 0, {}, {}, None, "2026-01-01T00:00:00+00:00", 1.0, results)
    (tmp_path / "again").mkdir()
    paths, again = draw(record, tmp_path), draw(record, tmp_path / "again")
    assert {path.name for path in paths} == {f"{name}.{suffix}" for name in PICTURES for suffix in ("png", "svg")}
    for path, other in zip(paths, again, strict=True):
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG\r" if path.suffix == ".png" else b"<?xml"), path.name
        assert content == other.read_bytes(), path.name
