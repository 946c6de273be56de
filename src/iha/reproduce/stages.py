"""What `iha reproduce` runs at each scale, in order. The paper's scale is in `paper`."""

from pathlib import Path

from iha.reproduce.stage import Stage

SCALES = ("quick", "standard")


def stages(scale: str, out: Path) -> list[Stage]:
    """`standard` is what the committed results were made with: hours."""
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)} or paper, got {scale!r}")
    quick = scale == "quick"
    runs = out / "scale-model-runs"
    models = [
        f"{label}={runs / f'pretrain-{name}-s0' / 'export'}" for label, name in (("IHA", "iha"), ("MHA", "global"))
    ]
    return [
        Stage("verify", "The theorems", ("verify", "--out", str(out / "verify")), 0.5),
        Stage("flops", "FLOPs, parameters, cache", ("flops", "--out", str(out / "flops")), 0.1),
        Stage(
            "synth", "Relation composition, 2-hop",
            ("synth", "binary", "--scale", "quick" if quick else "small", "--out", str(out / "synth")),
            4 if quick else 200,
        ),
        Stage(
            "scale-model", "Five mechanisms as language models",
            ("experiment", "scale-model", "--size", "quick" if quick else "small", "--seeds", "0" if quick else "0,1,2",
             "--runs", str(runs), "--out", str(out / "scale-model")),
            6 if quick else 700,
        ),
        Stage(
            "evaluate", "The five models answer questions",
            ("experiment", "evaluate", str(runs), "--lengths", "512,1024" if quick else "512,1024,2048",
             "--limit", "16" if quick else "100", "--out", str(out / "evaluation")),
            1.5 if quick else 30, needs=("scale-model",),
        ),
        Stage(
            "inside", "Inside a trained model", ("inspect", *models, "--out", str(out / "inside")),
            0.2, needs=("scale-model",),
        ),
        Stage(
            "bench", "Time and memory of attention",
            ("bench", "attention", *(("--quick",) if quick else ()), "--out", str(out / "bench")),
            1.5 if quick else 10,
        ),
        report_stage(out),
    ]  # fmt: skip


def report_stage(out: Path) -> Stage:
    """Always the last one: it shows what the others have made, and what is missing."""
    return Stage("report", "The report", ("report", str(out), "--out", str(out / "report")), 0.3)
