import pytest

from iha.evaluate.suites import by_name, choose


def test_ruler_by_group_setting_and_full_name():
    assert len(choose(["ruler"], [4096, 8192])) == 26
    assert [t.name for t in choose(["ruler_multikey", "vt"], [512])] == [
        "ruler_niah_multikey_1_512", "ruler_niah_multikey_2_512", "ruler_niah_multikey_3_512", "ruler_vt_512",
    ]  # fmt: skip
    assert choose(["ruler_vt_512", "vt"], [512]) == [by_name("ruler_vt_512")]


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="--lengths"):
        choose(["ruler"])
    with pytest.raises(ValueError, match="'hellaswag'"):
        choose(["hellaswag"])
    with pytest.raises(ValueError, match="got 100"):
        choose(["vt"], [100])
