"""What others rely on: names, signatures, and an import that stays light."""

import inspect
import subprocess
import sys

import pytest

import iha

NAMES = {
    "IHAConfig", "IHAForCausalLM", "InterleavedHeadAttention", "KVCache", "accounting", "convert",
    "interleaved_head_attention", "layers", "models", "ops", "reference",
}  # fmt: skip


def test_dir_shows_the_public_names_and_nothing_else():
    assert {name for name in dir(iha) if not name.startswith("_")} == NAMES
    assert all(hasattr(iha, name) for name in NAMES)


def _printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_the_rooms_are_there_after_a_bare_import():
    code = "import iha; print(iha.layers.__name__, iha.accounting.__name__, iha.convert.from_pretrained.__name__)"
    assert _printed(code).split() == ["iha.layers", "iha.accounting", "from_pretrained"]


def test_help_is_a_page_not_a_book():
    printed = _printed("import iha; help(iha)")
    assert "iha.convert.from_pretrained" in printed
    assert len(printed.splitlines()) < 80


def test_from_pretrained_is_typed():
    returned = inspect.signature(iha.convert.from_pretrained).return_annotation
    assert returned is iha.IHAForCausalLM


def test_the_operator_has_the_arguments_of_the_design():
    parameters = inspect.signature(iha.interleaved_head_attention).parameters
    defaults = {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert list(parameters)[:7] == ["q", "k", "v", "alpha_q", "alpha_k", "alpha_v", "collapse"]
    expected = {
        "causal": "virtual", "window": None, "rope_theta": None, "rope_positions": "virtual",
        "key_padding_mask": None, "document_ids": None, "scale": None, "backend": "auto",
    }  # fmt: skip
    assert expected.items() <= defaults.items()
    of_reference = inspect.signature(iha.reference.interleaved_head_attention).parameters
    assert set(expected) - {"backend"} <= set(of_reference)
    assert of_reference["score"].default == "softmax"


def test_the_layer_has_the_parameters_of_the_design():
    layer = iha.InterleavedHeadAttention(8, 2, 2)
    names = {name.split(".")[0] for name, _ in layer.named_parameters()}
    assert names == {"q_proj", "k_proj", "v_proj", "o_proj", "alpha_q", "alpha_k", "alpha_v", "collapse"}


def _packages_loaded_by(code: str) -> set[str]:
    report = f"import sys; before = set(sys.modules); {code}; print(*(set(sys.modules) - before))"
    result = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in result.stdout.split()} - set(sys.stdlib_module_names)


def test_import_is_lighter_than_torch():
    assert "torch" not in _packages_loaded_by("import iha")


def test_the_operator_and_the_layer_load_nothing_heavier_than_torch():
    names = "iha.interleaved_head_attention, iha.InterleavedHeadAttention, iha.reference, iha.KVCache"
    assert _packages_loaded_by(f"import torch, iha; {names}") - _packages_loaded_by("import torch") == {"iha"}


def test_the_command_line_is_listed_without_torch():
    """`iha --help` should not take the second that importing torch takes."""
    assert not {"torch", "transformers", "matplotlib"} & _packages_loaded_by("import iha.cli.main")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'nonsense'"):
        iha.nonsense  # noqa: B018
