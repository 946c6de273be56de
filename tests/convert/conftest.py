"""The checkpoints that both directions are tested on, written once."""

from pathlib import Path

import pytest

from convert.originals import written


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written(tmp_path_factory.mktemp("sources"))
