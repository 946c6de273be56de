"""The paper's own experiment: every command, planned first, and launched where the GPUs are."""

import math
from pathlib import Path

import torch

from iha.accounting.gpus import GPUS
from iha.experiment.variants import LABELS
from iha.records import Progress, Record, output_directory, silent, write_record
from iha.reproduce.run import Outcome, run_stages
from iha.reproduce.stage import Stage
from iha.reproduce.stages import report_stage
from iha.train.recipe import Recipe, read_recipe

KIND = "paper-launch"
PER_NODE = 8
PARAMETERS = 2.4e9
MFU = 0.4
PRETRAIN = Path("recipes/pretrain-2.4b.yaml")
# Each phase starts from the one before; then its model is evaluated as in the paper.
PHASES: tuple[tuple[Path, tuple[str, ...]], ...] = (
    (PRETRAIN, ("--tasks", "pretrain", "--allow-code")),
    (Path("recipes/long-context-64k.yaml"), ("--tasks", "ruler", "--lengths", "4096,8192,16384")),
    (Path("recipes/sft-openthoughts.yaml"), ("--tasks", "sft", "--chat", "--allow-code")),
)


def available_gpus() -> int:
    """On this machine."""
    return torch.cuda.device_count()


def planning_stages(gpus: int, gpu: str, out: Path) -> list[Stage]:
    """What runs anywhere: memory, FLOPs and days, without a GPU."""
    options = ("--gpus", str(gpus), "--gpu", gpu, "--out", str(out / "plan"))
    return [Stage("plan", "What it takes", ("plan", str(PRETRAIN), *options), 2)]


def training_stages(gpus: int, gpu: str, out: Path) -> list[Stage]:
    """Five mechanisms, three phases each: train, export, evaluate."""
    if gpu not in GPUS:
        raise ValueError(f"gpu must be one of {', '.join(GPUS)}, got {gpu!r}")
    if gpus < 1 or (gpus > PER_NODE and gpus % PER_NODE):
        raise ValueError(f"gpus must be 1 to {PER_NODE} or a multiple of {PER_NODE}, got {gpus}")
    return [stage for mechanism in LABELS for stage in _mechanism(mechanism, gpus, gpu, out)]


def _mechanism(mechanism: str, gpus: int, gpu: str, out: Path) -> list[Stage]:
    stages: list[Stage] = []
    label = LABELS[mechanism]
    before: Path | None = None
    for path, tasks in PHASES:
        recipe = read_recipe(path, [f"model.attention={mechanism}"])
        name = f"{recipe.name}-{mechanism}"
        run, export = out / "train" / name, out / "train" / name / "export"
        start = ("--init-from", str(before)) if before else ()
        # A step's sequences are shared evenly, so a small batch leaves GPUs idle.
        used = math.gcd(gpus, recipe.data.batch)
        stages += [
            Stage(
                f"train-{name}", f"{label}: {recipe.name}",
                ("train", str(path), f"model.attention={mechanism}", *start, "--out", str(run)),
                _minutes(recipe, used, gpu), needs=(f"export-{before.parent.name}",) if before else (),
                processes=min(PER_NODE, used), nodes=max(1, used // PER_NODE),
            ),
            Stage(
                f"export-{name}", f"{label}: export",
                ("export", str(run), "--dtype", "bfloat16", "--out", str(export)), 2, needs=(f"train-{name}",),
            ),
            Stage(
                f"evaluate-{name}", f"{label}: evaluation",
                ("eval", "run", str(export), *tasks, "--name", label, "--device", "cuda",
                 "--out", str(out / "eval" / name)), 600, needs=(f"export-{name}",),
            ),
        ]  # fmt: skip
        before = export
    return stages


def _minutes(recipe: Recipe, gpus: int, gpu: str) -> float:
    """By 6 FLOPs per parameter and token: only to show how much is left."""
    tokens = recipe.schedule.steps * recipe.data.batch * recipe.data.context
    return 6 * PARAMETERS * tokens / (gpus * GPUS[gpu].flops * MFU) / 60


def reproduce_paper(
    gpus: int, gpu: str, out: Path, *, command: str, progress: Progress = silent
) -> tuple[Record, list[Outcome]]:
    """Plan, and launch if this machine has the GPUs. The record, `out`/launch.json, has every command.

    More than one node is not launched from here: somebody has to start torchrun on each of them.
    """
    launch = training_stages(gpus, gpu, out)
    there = available_gpus()
    runs = gpus <= min(there, PER_NODE)
    output_directory(out)
    record = Record.new(KIND, command=command, config={"gpus": gpus, "gpu": gpu})
    record = record.finished(
        {"available": there, "launched": runs, "commands": [stage.command for stage in launch]}, seconds=0.0
    )
    write_record(out / "launch.json", record)
    stages = [*planning_stages(gpus, gpu, out), *(launch if runs else ()), report_stage(out)]
    return record, run_stages(stages, out, command=command, progress=progress)
