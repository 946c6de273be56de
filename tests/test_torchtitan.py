"""The torchtitan plug-in against the package, where it is installed; its own table everywhere."""

import dataclasses

import pytest

from iha import torchtitan as plugin
from iha.models.presets import preset


def test_flavours_are_presets_and_mechanisms():
    for name, attention in plugin.FLAVOURS.values():
        assert preset(name, attention=attention).attention == attention


def test_the_spec_has_the_fields_that_are_filled():
    spec = pytest.importorskip("torchtitan.protocols.model_spec", reason="torchtitan is not installed")
    fields = {field.name: field for field in dataclasses.fields(spec.ModelSpec)}
    assert set(fields) >= plugin.SPEC_FIELDS
    required = {name for name, field in fields.items() if field.default is field.default_factory is dataclasses.MISSING}
    assert required <= plugin.SPEC_FIELDS
    assert plugin.model_spec("10m-iha").flavor == "10m-iha"
