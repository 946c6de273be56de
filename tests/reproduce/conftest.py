"""Command lines as `iha` reads them."""

import pytest
import typer.main
from click import Context

from iha.cli.main import app


@pytest.fixture(scope="session")
def parsed():
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

    return parsed
