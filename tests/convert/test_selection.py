import pytest
from hypothesis import given
from hypothesis import strategies as st

from iha.convert.selection import parse_layers


def test_numbers_and_ranges() -> None:
    assert parse_layers("0-3,7, 5") == [0, 1, 2, 3, 5, 7]


@pytest.mark.parametrize("bad", ["", "a", "3-1", "1-", "-2", "1--2", "²", "1,,2", "1.5", "0x1"])
def test_anything_else_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="numbers and ranges"):
        parse_layers(bad)


@pytest.mark.parametrize("bad", ["0-99999999999", "0-999999999", "100000", "5,7-" + "9" * 5000])
def test_unbounded_ranges_are_refused_before_they_are_counted(bad: str) -> None:
    with pytest.raises(ValueError, match=r"no model has|numbers and ranges"):
        parse_layers(bad)


@given(st.sets(st.integers(0, 200), min_size=1))
def test_it_reads_what_it_is_told(layers: set[int]) -> None:
    assert parse_layers(",".join(map(str, layers))) == sorted(layers)


@given(st.text(alphabet="0123456789-, ab", max_size=12))
def test_any_text_is_layers_or_a_value_error(text: str) -> None:
    try:
        layers = parse_layers(text)
    except ValueError:
        return
    assert layers == sorted(set(layers))
    assert layers
