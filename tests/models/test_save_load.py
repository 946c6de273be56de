"""Saving and loading: weights survive, alpha and R too."""

import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tiny import KINDS, tiny_config, tiny_model, tokens
from transformers import AutoModel, AutoModelForCausalLM

import iha
from iha.models import IHAForCausalLM, IHAModel
from iha.models.remote_code import AUTO_MAPS, stub


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [True, False])
def test_round_trip(kind: str, tied: bool, tmp_path: Path) -> None:
    """Every parameter is what was saved: `_init_weights` does not run over alpha, R, lambda or the mixes again."""
    model, x = tiny_model(kind, tie_word_embeddings=tied), tokens(2, 9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    assert ("lm_head.weight" in load_file(tmp_path / "model.safetensors")) is not tied
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(loaded) is IHAForCausalLM
    for (name, a), (_, b) in zip(model.named_parameters(), loaded.named_parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, msg=name)
    torch.testing.assert_close(loaded(x).logits, model(x).logits, rtol=0, atol=0)
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) is tied
    assert isinstance(AutoModel.from_pretrained(tmp_path), IHAModel)


@pytest.mark.parametrize("init", ["one_hot", "identity", "random", "orthogonal"])
def test_mixing_starts_as_configured(init: str) -> None:
    model = tiny_model(mixing_init=init)
    alpha = model.model.layers[0].self_attn.alpha_q.detach()
    eye = torch.eye(4)[:, :, None].expand_as(alpha)
    distance = float((alpha - eye).abs().max())
    assert (distance == 0) if init == "identity" else (distance < 0.2) if init == "one_hot" else (distance > 0.2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_loading_in_half_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    model = IHAForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert model.generate(tokens(1, 5), max_new_tokens=4, do_sample=False).shape == (1, 9)


def test_meta_device() -> None:
    with torch.device("meta"):
        model = IHAForCausalLM(tiny_config())
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in tiny_model().parameters())


def test_sharded(tmp_path: Path) -> None:
    model, x = tiny_model(), tokens(1, 5)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    torch.testing.assert_close(IHAForCausalLM.from_pretrained(tmp_path)(x).logits, model(x).logits, rtol=0, atol=0)


def test_in_a_process_that_never_imports_iha(tmp_path: Path) -> None:
    """By the stub beside the weights, as lm_eval's command line does it."""
    model, x = tiny_model(), tokens(1, 6)
    model.save_pretrained(tmp_path / "m")
    script = f"""
import sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
assert "iha" not in sys.modules
assert AutoConfig.from_pretrained({str(tmp_path / "m")!r}, trust_remote_code=True).model_type == "iha"
model = AutoModelForCausalLM.from_pretrained({str(tmp_path / "m")!r}, trust_remote_code=True)
print(float(model(torch.tensor({x.tolist()})).logits.double().sum()))
"""
    out = _run(script, tmp_path)
    assert float(out.stdout.split()[-1]) == pytest.approx(float(model(x).logits.double().sum()), abs=1e-5)


def test_the_stub_is_uploaded_with_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the Hub: what is in the directory when the upload begins."""
    uploaded: list[dict[str, str]] = []

    def upload(_: object, directory: str, *args: object, **kwargs: object) -> None:
        uploaded.append({path.name: path.read_text() for path in Path(directory).glob("[mc]*.[pj]*")})

    hub, card = mock.Mock(), mock.Mock()
    for module in ("modeling_utils", "utils.hub"):
        monkeypatch.setattr(f"transformers.{module}.hf_api", lambda: hub)
        monkeypatch.setattr(f"transformers.{module}.create_and_tag_model_card", lambda *args, **kwargs: card)
    monkeypatch.setattr("transformers.utils.hub.PushToHubMixin._upload_modified_files", upload)
    tiny_model().save_pretrained(tmp_path / "m", push_to_hub=True)
    tiny_model().push_to_hub("m")
    assert len(uploaded) == 2
    for files in uploaded:
        assert "IHAForCausalLM" in files["modeling_iha.py"]
        assert json.loads(files["config.json"])["auto_map"]["AutoConfig"] == "modeling_iha.IHAConfig"


def test_where_iha_is_not_installed_the_stub_says_what_to_install(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path / "m")
    script = f"""
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "iha" or name.startswith("iha."):
            raise ModuleNotFoundError("No module named 'iha'", name="iha")
sys.meta_path.insert(0, Hidden())
from transformers import AutoModelForCausalLM
AutoModelForCausalLM.from_pretrained({str(tmp_path / "m")!r}, trust_remote_code=True)
"""
    out = _run(script, tmp_path, check=False)
    assert out.returncode != 0
    assert "pip install" in out.stderr
    assert "iha" in out.stderr


def _run(script: str, tmp_path: Path, check: bool = True) -> subprocess.CompletedProcess:
    import os

    environment = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert not check or result.returncode == 0, result.stderr
    return result


def test_lazy_names() -> None:
    assert iha.IHAForCausalLM is IHAForCausalLM
    assert iha.IHAConfig is type(tiny_config())
    with pytest.raises(AttributeError, match="nothing"):
        _ = iha.nothing


def test_import_iha_stays_light() -> None:
    script = "import sys, iha; assert 'transformers' not in sys.modules and 'iha.models' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_every_class_of_the_stub_is_there(tmp_path: Path) -> None:
    """`auto_map` names classes of the stub by string: each must be importable from it."""
    import importlib.util

    tiny_model().save_pretrained(tmp_path)
    spec = importlib.util.spec_from_file_location("modeling_iha", tmp_path / "modeling_iha.py")
    stub = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stub)
    named = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert {name.split(".")[1] for name in named.values()} <= set(stub.__all__)
    assert all(hasattr(stub, name) for name in stub.__all__)


def test_the_stub_has_every_class_that_the_auto_classes_are_pointed_to() -> None:
    named = {name for classes in AUTO_MAPS.values() for name in classes.values()}
    assert named == {f"modeling_iha.{name}" for name in stub.__all__}
    for classes in AUTO_MAPS.values():
        for auto, name in classes.items():
            config = getattr(stub, classes["AutoConfig"].split(".")[1])
            if auto != "AutoConfig":
                assert getattr(transformers, auto)._model_mapping[config].__name__ == name.split(".")[1]
