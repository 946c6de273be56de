"""Every stage is a command that exists, with options that exist."""

from pathlib import Path

import pytest
import typer.main
from click import Context

from iha.cli.main import app
from iha.reproduce.stages import SCALES, paper_commands, stages
from iha.train.recipe import read_recipe

ROOT = Path(__file__).parent.parent.parent


def parsed(arguments):
    """The options of a command line, as click reads them; raises for what it does not know."""
    command = typer.main.get_command(app)
    context = Context(command)
    words = list(arguments)
    while hasattr(command, "commands"):
        name = words.pop(0)
        command = command.commands[name]
        context = Context(command, parent=context, info_name=name)
    command.parse_args(context, words)
    return context.params


@pytest.mark.parametrize("scale", SCALES)
def test_stages_are_commands(scale, tmp_path):
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


def test_the_paper_s_recipes_exist():
    recipes = {word for line in paper_commands(128, "h200") for word in line.split() if word.endswith(".yaml")}
    assert len(recipes) == 3
    for recipe in recipes:
        read_recipe(ROOT / recipe)
