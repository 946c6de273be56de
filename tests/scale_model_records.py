"""Records of the scale model, made by hand."""

from iha.records import Record


def run_record(
    mechanism, seed, losses, flops=1.0, speed=10.0, variant="", accuracy=(0.1, 0.6, 0.97), rate=None, source="text",
    phase="pretrain", **more,
):  # fmt: skip
    words = [phase, mechanism, *([variant] if variant else []), *([f"lr{rate:g}"] if rate else []), f"s{seed}"]
    config = {
        "phase": phase, "mechanism": mechanism, "variant": variant, "label": mechanism + variant, "seed": seed,
        "learning_rate": rate or 1e-3, "tokens": 100 * len(losses), "name": "-".join(words), **more,
    }  # fmt: skip
    results = {
        "parameters": 10, "flops_per_token": flops, "tokens_per_second": {"median": speed, "best": speed},
        "peak_bytes": 1, "skipped": 0, "training": [],
        "validation": [{"tokens": 100 * (i + 1), source: loss, "pairs": loss} for i, loss in enumerate(losses)],
        "probe": [{"tokens": 100 * (i + 1), "pairs": value} for i, value in enumerate(accuracy)],
    }  # fmt: skip
    return Record("scale-model-run", "iha", config, seed, {}, {}, None, "2026-01-01T00:00:00+00:00", 1.0, results)


def measured_record(mechanism, seed, phase="pretrain", retrieval=None, problems=None):
    config = {
        "phase": phase, "mechanism": mechanism, "variant": "", "label": mechanism, "seed": seed, "window": 512,
        "name": f"{phase}-{mechanism}-s{seed}", "settings": {"samples": 8},
    }  # fmt: skip
    results = {"puzzles": {"pairs 4": 0.5 + seed / 10, "hops 2": 0.25}, "left_out": {}}
    if retrieval is not None:
        results["retrieval"] = retrieval
    if problems is not None:
        results["word_problems"] = {
            "metrics": {"P@1": problems, "Maj@16": problems + 1}, "by_steps": {"1": {"P@1": problems, "Maj@16": 0.0}},
            "questions": 20, "decoding": {"samples": 16, "temperature": 0.6},
        }  # fmt: skip
    start = "2026-01-01T00:00:00+00:00"
    return Record("scale-model-measurement", "iha", config, seed, {}, {}, None, start, 1.0, results)
