"""Pictures: the same bytes for the same numbers, and the matrix that was given."""

import pytest

pytest.importorskip("matplotlib")

import numpy as np

from iha.report.style import figure, heat, save, tidy


def drawn():
    picture = figure(3, 2)
    axes = picture.subplots()
    axes.plot([1, 2, 3], [1, 4, 9])
    tidy(axes)
    return picture


def test_the_same_numbers_give_the_same_bytes(tmp_path):
    contents = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        paths = save(drawn(), tmp_path / name, "squares")
        assert [path.name for path in paths] == ["squares.png", "squares.svg"]
        contents.append([path.read_bytes() for path in paths])
    assert contents[0] == contents[1]
    assert b"<dc:date>" not in contents[0][1]


def test_a_heat_map_shows_its_matrix_from_zero_up():
    axes = figure(2, 2).subplots()
    matrix = np.array([[0.0, 0.5], [1.0, 0.25]])
    heat(axes, matrix, vmax=2.0)
    (image,) = axes.get_images()
    assert np.array_equal(image.get_array(), matrix)
    assert image.get_clim() == (0, 2.0)
    assert list(axes.get_xticks()) == list(axes.get_yticks()) == []


def test_tidy_axes_have_two_spines():
    (axes,) = drawn().get_axes()
    visible = {name for name, spine in axes.spines.items() if spine.get_visible()}
    assert visible == {"left", "bottom"}
