"""Commands called as users call them, and the recipe of a tiny model."""

from click.testing import Result
from typer.testing import CliRunner

from iha.cli.main import app

TINY = """
model:
  config: {hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 2, global_every: 2}
data: {context: 32, batch: 4, validation: 0.2, sources: [{name: hops, kind: generated, generator: hops, count: 40}]}
schedule: {steps: 4, warmup: 1}
checkpoint: {every: 2}
logging: {every: 1}
"""


def iha(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def assert_refused(result: Result, message: str) -> None:
    """One line on stderr, exit code 2."""
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
