"""What a training run would take, as a table."""

from collections.abc import Sequence
from typing import Any

from iha.accounting.gpus import GPUS
from iha.records import Column, Record, Table
from iha.train.plan import USABLE

_GIB = 2**30


def plan_table(plans: Sequence[dict[str, Any]], *, title: str, gpu_bytes: int, usable: float) -> Table:
    """One row per mechanism; GiB per GPU at the peak of a step."""
    numbers = ("parameters", "gradients", "optimiser", "activations")
    titles = ("10⁹", "params", "grads", "optim", "activ", "peak", "fits", "PFLOP", "ratio", "days", "cache")
    columns: list[str | Column] = ["mechanism", *(Column(name, "right", wrap=False) for name in titles)]
    table = Table(title, columns)
    for plan in plans:
        memory = plan["footprint"]
        total = sum(memory[name] for name in numbers)
        fits = total <= usable * gpu_bytes
        cache = plan["cache_bytes"]
        table.add(
            [plan["attention"], f"{plan['parameters'] / 1e9:.3f}", *(f"{memory[name] / _GIB:.1f}" for name in numbers),
             f"{total / _GIB:.1f}", "yes" if fits else "no", f"{plan['flops_per_step'] / 1e15:.2f}",
             f"{plan['ratio_to_global']:.3f}", f"{plan['days']:.2f}", None if cache is None else f"{cache / 2**20:.0f}"]
        )  # fmt: skip
    room = f"{gpu_bytes / _GIB:.0f} GiB per GPU, of which {usable:.0%} are counted on"
    table.note(
        f"10⁹: parameters of the model. params to peak: GiB per GPU when a step needs most ({room}). PFLOP per step, "
        "ratio to global attention. cache: MiB of one sequence of the recipe's context, bfloat16."
    )
    for plan in plans:
        if plan["remedy"]:
            total = sum(plan["remedied"][name] for name in numbers)
            table.note(f"{plan['attention']} does not fit; with {' '.join(plan['remedy'])}: {total / _GIB:.1f} GiB")
        elif plan["remedy"] is not None:
            table.note(f"{plan['attention']} does not fit, and no setting makes it: more GPUs to shard over")
    return table


def record_table(record: Record) -> Table:
    """The table of a record of `iha plan`."""
    config = record.config
    recipe, gpus, gpu = config["recipe"], config["gpus"], config["gpu"]
    title = f"{recipe['name']} on {gpus} × {gpu}: {recipe['schedule']['steps']:,} steps at {config['mfu']:.0%} MFU"
    return plan_table(record.results, title=title, gpu_bytes=GPUS[gpu].memory, usable=USABLE)
