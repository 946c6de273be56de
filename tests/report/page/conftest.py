"""A small page with everything on it: sample records, an untrained model to look into."""

import pytest
import torch

from iha import IHAConfig, IHAForCausalLM
from iha.evaluate.inside import look_inside
from iha.records import Record
from iha.report.page.build import build_page
from iha.report.page.charts import bars, lines
from iha.report.page.cost import cost_section
from iha.report.page.errata import errata_section
from iha.report.page.explorer import explorer_section
from iha.report.page.section import Chart, Missing, Section


class Letters:
    """A tokenizer of bytes, with the two calls that are needed."""

    def __call__(self, text, **_):
        return {"input_ids": list(text.encode())}

    def decode(self, ids):
        return bytes(ids).decode(errors="replace")


@pytest.fixture(scope="session")
def inside():
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 5,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    models = {
        "IHA": IHAForCausalLM(IHAConfig(**sizes, num_pseudo_heads=2)),
        "MHA": IHAForCausalLM(IHAConfig(**sizes, attention="global")),
    }
    return models, look_inside(models, Letters(), ["The boss of Ann", "What is foot? 318"], max_tokens=12)


@pytest.fixture(scope="session")
def page(inside):
    section = Section("curves", "Curves")
    section.paragraph("A line with `code` & <b>markup</b> that must not be markup.")
    rows = [{"epoch": epoch, "accuracy": 0.5 + 0.01 * epoch * slope, "mechanism": name}
            for slope, name in ((1, "IHA"), (2, "MHA")) for epoch in range(1, 9)]  # fmt: skip
    curve = lines(rows, "epoch", "accuracy", "mechanism", x_title="epoch", y_title="accuracy")
    ends = [{"mechanism": name, "score": score, "low": score - 1, "high": score + 1, "rate": "1e-3"}
            for name, score in (("IHA", 90.0), ("MHA", 92.0))]  # fmt: skip
    bar = bars(ends, "mechanism", "score", title="accuracy, %", spread=("low", "high"), group="rate")
    section.add(
        Chart("curve", "Learning curves", curve, "accuracy by epoch", "iha synth", log_axes=("y",)),
        Chart("bar", "Final accuracy", bar, "final accuracy", "iha synth"),
        Missing("the paper's scale", "iha synth --scale paper"),
    )
    record = Record.new("inside", command="iha inspect IHA=DIR MHA=DIR", config={})
    sections = [explorer_section(record), section, cost_section(), errata_section()]
    return build_page(sections, lead="A lead.", footer="A footer.", explorer=inside[1])
