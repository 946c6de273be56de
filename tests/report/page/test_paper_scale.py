"""The paper's scale on the page: the plan's figures and the commands are those of the records."""

from pathlib import Path

from iha.records import read_record
from iha.report.page.paper_scale import paper_scale_section
from iha.report.page.section import Figure, Missing
from page_records import record, results_of

PLAN = Path(__file__).parents[3] / "results" / "train" / "plan-2.4b.json"


def test_the_plan_and_every_command(tmp_path):
    launch = record("paper-launch", {"available": 0, "launched": False, "commands": ["torchrun -m iha train a",
                    "iha export <run>"]}, gpus=128, gpu="h200")  # fmt: skip
    plan = read_record(PLAN)
    section = paper_scale_section(results_of(tmp_path, launch, plan))
    (figure,) = [part for part in section.parts if isinstance(part, Figure)]
    shown = {row[0]: row for row in figure.table.rows}
    for one in plan.results:
        assert shown[one["attention"]][-2] == f"{one['days']:.2f}"
    html = section.html()
    assert "torchrun -m iha train a" in html
    assert "iha export &lt;run&gt;" in html
    assert "For 128 GPUs (h200): 2 commands, not launched: this machine has 0." in html


def test_what_is_missing_has_its_command(tmp_path):
    parts = [part for part in paper_scale_section(results_of(tmp_path)).parts if isinstance(part, Missing)]
    assert [part.command.split()[1] for part in parts] == ["plan", "reproduce"]
