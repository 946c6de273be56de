"""Every stage is a command that exists, with options that exist."""

from pathlib import Path

import pytest

from iha.reproduce.stages import SCALES, stages


@pytest.mark.parametrize("scale", SCALES)
def test_stages_are_commands(scale, tmp_path, parsed):
    for stage in stages(scale, tmp_path):
        (tmp_path / stage.name).mkdir(exist_ok=True)
        assert Path(parsed(stage.arguments)["out"]).is_relative_to(tmp_path)


def test_what_a_stage_needs_comes_before_it(tmp_path):
    names = [stage.name for stage in stages("quick", tmp_path)]
    for stage in stages("quick", tmp_path):
        assert all(names.index(need) < names.index(stage.name) for need in stage.needs)
    assert names[-1] == "report"


def test_an_unknown_scale_is_refused(tmp_path):
    with pytest.raises(ValueError, match="got 'huge'"):
        stages("huge", tmp_path)
