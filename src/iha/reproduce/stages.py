"""What `iha reproduce` runs at each scale, in order."""

from dataclasses import dataclass
from pathlib import Path

from iha.train.flops import GPUS

SCALES = ("quick", "standard")
INSPECTED = {"IHA": "iha", "MHA": "global"}  # what the explorer shows, by the names of the scale model


@dataclass(frozen=True)
class Stage:
    name: str  # of its directory and its log
    title: str
    arguments: tuple[str, ...]  # of `iha`
    minutes: float  # approximate, on two cores; to estimate the remaining time
    needs: tuple[str, ...] = ()  # stages that it needs

    @property
    def command(self) -> str:
        return " ".join(["iha", *self.arguments])


def stages(scale: str, out: Path) -> list[Stage]:
    """`standard` is what the committed results were made with: hours."""
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)} (or paper, which only plans), got {scale!r}")
    quick = scale == "quick"
    runs = out / "scale-model-runs"
    size = "quick" if quick else "small"
    seeds = "0" if quick else "0,1,2"
    models = [
        f"{label}={runs / f'pretrain-{name}-s0' / 'export'}" for name, label in (("iha", "IHA"), ("global", "MHA"))
    ]
    found = [
        Stage("verify", "The theorems", ("verify", "--out", str(out / "verify")), 0.5),
        Stage("flops", "FLOPs, parameters, cache", ("flops", "--out", str(out / "flops")), 0.1),
        Stage(
            "synth",
            "Relation composition, 2-hop",
            ("synth", "binary", "--scale", "quick" if quick else "small", "--out", str(out / "synth")),
            4 if quick else 200,
        ),
        Stage(
            "scale-model",
            "Five mechanisms as language models",
            (
                "experiment",
                "scale-model",
                "--size",
                size,
                "--seeds",
                seeds,
                "--runs",
                str(runs),
                "--out",
                str(out / "scale-model"),
            ),
            6 if quick else 700,
        ),
        Stage(
            "evaluate",
            "The five models answer questions",
            (
                "experiment",
                "evaluate",
                str(runs),
                "--lengths",
                "512,1024" if quick else "512,1024,2048",
                "--limit",
                "16" if quick else "100",
                "--out",
                str(out / "evaluation"),
            ),
            1.5 if quick else 30,
            needs=("scale-model",),
        ),
        Stage(
            "inside",
            "Inside a trained model",
            ("inspect", *models, "--out", str(out / "inside")),
            0.2,
            needs=("scale-model",),
        ),
        Stage(
            "bench",
            "Time and memory of attention",
            ("bench", "attention", *(("--quick",) if quick else ()), "--out", str(out / "bench")),
            1.5 if quick else 10,
        ),
    ]
    found.append(Stage("report", "The report", ("report", str(out), "--out", str(out / "report")), 0.3))
    return found


def paper_commands(gpus: int, gpu: str) -> list[str]:
    """The paper's own experiment: what to type, for those who have the machines."""
    if gpu not in GPUS:
        raise ValueError(f"gpu must be one of {', '.join(GPUS)}, got {gpu!r}")
    if gpus < 1 or (gpus > 8 and gpus % 8):
        raise ValueError(f"gpus must be from 1 to 8, or whole machines of 8, got {gpus}")
    launch = f"torchrun --nnodes {max(1, gpus // 8)} --nproc-per-node {min(8, gpus)} -m iha train"
    commands = []
    for attention in ("global", "global_local", "talking_heads", "differential", "iha"):
        out = f"runs/{attention}"
        previous = None
        for recipe in ("pretrain-2.4b", "long-context-64k", "sft-openthoughts"):
            start = f" --init-from {previous}-hf" if previous else ""
            run = f"{out}/{recipe}"
            commands.append(f"{launch} recipes/{recipe}.yaml model.attention={attention}{start} --out {run}")
            commands.append(f"iha export {run} --out {run}-hf")
            previous = run
    return [f"iha plan recipes/pretrain-2.4b.yaml --gpus {gpus} --gpu {gpu}", *commands]
