"""The explorer always has a model: this run's, the committed one, or the small trained one that ships."""

import base64
import json
import re
from importlib.resources import files

import numpy as np

from iha.report.page.explorer import explored, explorer_section, shipped
from page_records import record, results_of


def test_what_ships_is_small_and_whole():
    size = len((files("iha.report.page") / "assets" / "inside.json").read_bytes())
    assert size < 300_000
    found = shipped().results
    assert list(found["models"]) == ["IHA", "MHA"]
    assert len(found["examples"]) >= 2
    layers = found["models"]["IHA"]
    for example in found["examples"]:
        for layer, packed in zip(layers, example["maps"]["IHA"], strict=True):
            side = layer["P"] * len(example["tokens"])
            roots = np.frombuffer(base64.b64decode(packed), np.uint8).reshape(layer["H"], side, side) / 255
            np.testing.assert_allclose((roots**2).sum(-1), 1, atol=0.15)  # rows of attention, in bytes


def test_what_ships_is_trained():
    """Every initialisation of alpha is zeros and ones: training has moved all of them."""
    for layer in shipped().results["models"]["IHA"]:
        if layer["P"] > 1:
            alpha = np.array(layer["alpha_q"])
            assert np.abs(alpha[np.abs(alpha) < 0.5]).mean() > 0.01


def test_records_of_runs_come_first(tmp_path):
    mine, kept = (record("inside", {"who": name}) for name in ("mine", "kept"))
    assert explored(results_of(tmp_path / "a", mine, committed=[kept])).results == {"who": "mine"}
    assert explored(results_of(tmp_path / "b", committed=[kept])).results == {"who": "kept"}
    assert explored(results_of(tmp_path / "c")) == shipped()


def test_the_command_is_shown():
    assert "iha inspect" in explorer_section(shipped()).html()
    json.dumps(shipped().results, allow_nan=False)


def test_every_element_that_the_script_looks_for_is_there():
    script = (files("iha.report.page") / "assets" / "explorer.js").read_text(encoding="utf-8")
    wanted = set(re.findall(r"""["'`]#?(explorer-[a-z-]*[a-z])["'`]""", script))
    there = set(re.findall(r'id="(explorer[a-z-]*)"', explorer_section(shipped()).html()))
    assert len(wanted) >= 8
    assert wanted <= there
