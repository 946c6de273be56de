"""The paper's own scale: what it takes, and every command, for those who have the GPUs."""

from html import escape

from iha.report.page.results import Results
from iha.report.page.section import Details, Figure, Missing, Section, Text, repeat
from iha.report.plan import record_table

PLAN, LAUNCH = "train-plan", "paper-launch"
COMMAND = "iha reproduce --scale paper"


def paper_scale_section(results: Results) -> Section:
    section = Section("paper-scale", "The paper's scale")
    section.paragraph(
        "2.4 B parameters, 240 B tokens, five mechanisms. The figures are of the real sharded training step on fake "
        "tensors; nothing of this size was trained here unless the tables above say so."
    )
    plan, launch = results.best(PLAN), results.best(LAUNCH)
    section.add(
        Figure(record_table(plan.record), plan.record.command)
        if plan
        else Missing("memory, FLOPs and days of the paper's runs", "iha plan recipes/pretrain-2.4b.yaml")
    )
    if launch is None:
        section.add(Missing("the list of commands", COMMAND))
        return section
    config, found = launch.record.config, launch.record.results
    state = "launched here" if found["launched"] else f"not launched: this machine has {found['available']}"
    section.paragraph(f"For {config['gpus']} GPUs ({config['gpu']}): {len(found['commands'])} commands, {state}.")
    lines = "".join(f"<li>{repeat(command)}</li>" for command in found["commands"])
    section.add(Details(f"All {len(found['commands'])} commands, in order", (Text(f"<ol>{lines}</ol>"),)))
    section.add(Text(f"<p class='note'>Made by <code>{escape(launch.record.command)}</code></p>"))
    return section
