"""The published benchmarks, where somebody has put them: in ../shared/data beside the project, or $IHA_DATA."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

DATA = Path(os.environ.get("IHA_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the published benchmarks are not in {DATA}")


def rows(file: str) -> list[dict[str, Any]]:
    path = DATA / file
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [json.loads(line) for line in text.splitlines()]
