"""Checkpoints run no code; damaged files are named."""

from pathlib import Path

import pytest
import torch

from iha.synthetic import files
from iha.synthetic.sweep import run_sweep
from iha.synthetic.trainer import train
from synthetic.runs import TINY


def test_checkpoints_run_no_code(tmp_path: Path) -> None:
    torch.save({"model": Path("somewhere")}, tmp_path / "bad.pt")  # an object: needs unpickling
    with pytest.raises(ValueError, match=r"bad\.pt is not a readable checkpoint"):
        files.load_state(tmp_path / "bad.pt")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"config": 3, "history": []}', '{"schema": 1, "kind": "other"}'])
def test_a_damaged_record_or_plan_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / f"{TINY.name}.json").write_text(content)
    with pytest.raises(ValueError, match=rf"{TINY.name}\.json"):
        train(TINY, tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sweep.json").write_text(content)
    with pytest.raises(ValueError, match=r"sweep\.json"):
        run_sweep([TINY], tmp_path / "out")
