"""The table of the other architectures: IHA beside its multi-head twin of equal FLOPs."""

from collections.abc import Sequence
from typing import Any

from iha.experiment.architecture_tasks import TASKS
from iha.records import Column, Record, Table

NAMES = {"iha": "IHA, P = 2", "multihead": "multi-head"}


def architectures_table(records: Sequence[Record]) -> Table:
    titles = ("feed-forward", "parameters", "MFLOPs per batch", "test loss", "test accuracy")
    table = Table("IHA beside its twin of equal FLOPs", ["model", *(Column(title, "right") for title in titles)])
    for record in records:
        results, seeds = record.results, len(record.config["seeds"])
        table.add_section(f"{TASKS[record.config['task']].what} ({record.config['steps']} steps, {seeds} seeds)")
        for mechanism, name in NAMES.items():
            model, test = results["models"][mechanism], results["test"][mechanism]
            table.add(
                [
                    name, model["feed_forward"], f"{model['parameters']:,}",
                    f"{model['forward_flops_per_batch'] / 1e6:.1f}",
                    _spread(test["loss"], 1), _spread(test["accuracy"], 100, " %"),
                ]
            )  # fmt: skip
        difference = results["difference"]
        loss, accuracy = _tested(difference["loss"], 1), _tested(difference["accuracy"], 100, " pp")
        table.add(["difference", None, None, None, loss, accuracy])
    table.note("Mean over seeds ± standard deviation; each at the learning rate that is best for it in validation.")
    table.note("Difference: IHA - multi-head, paired by seed, with the p of Student's t test.")
    return table


def _spread(found: dict[str, Any], times: float, unit: str = "") -> str:
    digits = 3 if times == 1 else 1
    spread = "" if found["sd"] is None else f" ± {times * found['sd']:.{digits}f}"
    return f"{times * found['mean']:.{digits}f}{spread}{unit}"


def _tested(found: dict[str, Any], times: float, unit: str = "") -> str:
    digits = 3 if times == 1 else 1
    p = "" if found["p"] is None else f" (p = {found['p']:.2f})"
    return f"{times * found['mean']:+.{digits}f}{unit}{p}"
