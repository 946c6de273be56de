"""Finished runs are looked into once, on held-out data, beside the weights that they began with."""

import pytest

from iha.experiment.inside import look_inside


@pytest.mark.slow
def test_runs_with_pseudo_heads(little):
    records = look_inside(little.records, little.runs, command="iha experiment inside", sequences=1)
    names = [record.config["name"] for record in records]
    assert names == ["adapt-iha-s0", "pretrain-iha-s0", "tune-iha-s0"]
    by_name = dict(zip(names, records, strict=True))
    layers = by_name["pretrain-iha-s0"].results["layers"]
    assert [layer["layer"] for layer in layers] == [0, 1, 2, 3]
    # Two steps of AdamW move no entry by more than twice the learning rate, and those of R move.
    moved = by_name["pretrain-iha-s0"].results["summary"]["moved"]
    assert 0 < moved["collapse"]["largest"] < 0.05
    assert 0 < moved["alpha_q"]["largest"] < 0.05
    again = look_inside(little.records, little.runs, command="another", names=["tune-iha-s0"])
    assert again[0].command == "iha experiment inside"


def test_nothing_to_look_into_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="has pseudo-heads and an export"):
        look_inside(tmp_path, tmp_path, command="iha")
    with pytest.raises(ValueError, match="pretrain-iha-s0: no record in"):
        look_inside(tmp_path, tmp_path, command="iha", names=["pretrain-iha-s0"])
