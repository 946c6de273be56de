"""`iha export`: the step and the type that are asked for, where it is asked for."""

import json

from safetensors.torch import load_file

from cli.calls import assert_refused, iha


def test_a_step_in_a_type(trained, tmp_path):
    result = iha("export", trained, "--step", 2, "--dtype", "bfloat16", "--out", tmp_path / "hf")
    assert result.exit_code == 0, result.output
    assert "step 2 in" in result.output
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["dtype"] == "bfloat16"
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    assert {str(tensor.dtype) for tensor in tensors.values()} == {"torch.bfloat16"}


def test_the_newest_beside_the_run_by_default(trained):
    newest = load_file(trained / "export" / "model.safetensors")
    assert {str(tensor.dtype) for tensor in newest.values()} == {"torch.float32"}


def test_mistakes_leave_nothing(trained, tmp_path):
    assert_refused(iha("export", tmp_path), "not the directory of a training run")
    assert_refused(iha("export", trained, "--step", 3, "--out", tmp_path / "hf"), "no complete checkpoint of step 3")
    assert not (tmp_path / "hf").exists()
