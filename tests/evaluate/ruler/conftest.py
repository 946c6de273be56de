"""Essays and documents that all of RULER's tests read."""

from pathlib import Path

import pytest
from material import write_materials


@pytest.fixture(scope="session")
def materials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_materials(tmp_path_factory.mktemp("ruler"))
