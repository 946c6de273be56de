"""A tiny model, trained once, for the commands that read a run."""

from pathlib import Path

import pytest

from cli.calls import TINY, iha


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    (tmp_path / "tiny.yaml").write_text(TINY)
    return str(tmp_path / "tiny.yaml")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory and its export; not to be changed."""
    directory = tmp_path_factory.mktemp("trained")
    (directory / "tiny.yaml").write_text(TINY)
    for words in (("train", directory / "tiny.yaml", "--out", directory / "run"), ("export", directory / "run")):
        result = iha(*words)
        assert result.exit_code == 0, result.output
    return directory / "run"
