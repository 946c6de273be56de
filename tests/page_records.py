"""Records made by hand, and a `Results` of them."""

import itertools

from iha.records import Record, write_record
from iha.report.page.results import Results

SIZES = {"binary": [6, 7, 8, 9, 10], "ternary": [5, 6, 7, 8]}


def results_of(directory, *records, committed=()):
    """Those of this run, and committed ones, as files below a directory."""
    places = directory / "run", directory / "committed"
    for place, group in zip(places, (records, committed), strict=True):
        place.mkdir(parents=True)
        for number, record in enumerate(group):
            folder = place / record.config.get("folder", ".")
            folder.mkdir(parents=True, exist_ok=True)
            write_record(folder / f"{record.kind}-{number}.json", record)
    return Results(*places)


def record(kind, results, command="iha", **config):
    return Record.new(kind, command=command, config=config).finished(results)


def composition(task, accuracies, *, finished=True, seed=0, learning_rate=1e-3, name="sweep", **change):
    """A sweep of the paper's model: test accuracies by epoch for each mechanism."""
    runs = []
    for mechanism, history in accuracies.items():
        config = {
            "task": task, "mechanism": mechanism, "sizes": SIZES[task], "train_examples": 40000, "num_heads": 8,
            "num_pseudo_heads": 8 if mechanism == "iha" else 1, "init": "one_hot" if mechanism == "iha" else "",
            "positions": "1d", "batch_size": 32, "learning_rate": learning_rate, "mixing_rate": 1.0, "seed": seed,
            "model": "paper", "norm": "pre", "weight_decay": 0.0, **change,
        }  # fmt: skip
        points = [{"epoch": epoch, "test": value} for epoch, value in enumerate(history, 1)]
        runs.append(
            {"name": f"{task}-{mechanism}", "config": config, "finished": finished, "history": points,
             "best": max(points, key=lambda point: point["test"])}
        )  # fmt: skip
    variants = [
        {"label": run["config"]["mechanism"], "config": run["config"], "finished": [run["finished"]],
         "final": dict.fromkeys(("mean", "min", "max"), run["best"]["test"])}
        for run in runs
    ]  # fmt: skip
    return record("synthetic-results", {"summary": {"task": task, "variants": variants}, "runs": runs}, experiment=name)


def evaluation(model, scores):
    """Per task, metric and question; a share of 1."""
    results = {
        task: {
            "metrics": {metric: 100 * sum(values) / len(values) for metric, values in metrics.items()},
            "scores": metrics, "questions": len(next(iter(metrics.values()))), "asked": "same",
        }
        for task, metrics in scores.items()
    }  # fmt: skip
    return record("evaluation", results, command=f"iha eval run {model}", model=model, folder=model)


def answers(accuracy):
    """The evaluation of two models after both phases; the score of every task follows from `accuracy`."""
    numbers = itertools.count()
    results = {}
    for phase, tasks in (("adapt", ("ruler_niah_single_1_512", "puzzle_pairs")), ("tune", ("puzzle_arithmetic",))):
        results[phase] = {
            mechanism: {
                "label": label,
                "tasks": {t: {"metrics": {"EM": accuracy[mechanism]}, "questions": 16} for t in tasks},
                "answers": {
                    t: [{"prompt": f"What is <{t}>?", "reference": ["318"], "text": f" {label} wrote {next(numbers)}",
                         "score": 1.0 if label == "IHA" else 0.0}]
                    for t in tasks
                },
            }
            for mechanism, label in (("global", "Global"), ("iha", "IHA"))
        }  # fmt: skip
    return record("scale-model-evaluation", results, command="iha experiment evaluate RUNS", limit=16)
