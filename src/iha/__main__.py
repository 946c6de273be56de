"""`python -m iha`: the command line."""

from iha.cli.main import app

app(prog_name="iha")
