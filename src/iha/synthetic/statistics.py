"""What a sweep says: every variant over its seeds, at equal epochs, at equal training FLOPs and at equal time."""

import math
from collections.abc import Sequence
from typing import Any

from iha.layers.mechanisms import find_mechanism
from iha.synthetic.files import Run
from iha.synthetic.stopping import best_epoch, by_loss, until_stop

_OF_PSEUDO_HEADS = ("num_pseudo_heads", "num_pseudo_keys", "init", "mixing_rate")  # other mechanisms have none of these
_SHORT = {
    "num_heads": "H",
    "num_pseudo_heads": "P",
    "num_pseudo_keys": "P_k ",
    "learning_rate": "lr ",
    "mixing_rate": "mixing lr x",
    "width": "width ",
    "batch_size": "batch ",
    "weight_decay": "decay ",
    "window": "window ",
}


def summarise(records: Sequence[Run]) -> dict[str, Any]:
    """Runs that differ only in the seed are one variant.

    The common epoch, FLOPs and time are the largest that every finished run has reached; a run that was stopped
    earlier has no score there. "final" is the test score of the epoch with the best validation score. Time is CPU
    time of single-threaded training without evaluation, which equals wall-clock time on an idle machine.
    """
    if not records:
        raise ValueError("no run has finished an epoch: there is nothing to summarise")
    variants: dict[tuple, list[Run]] = {}
    for record in records:
        variants.setdefault(_variant(record["config"]), []).append(record)
    shown = varying([record["config"] for record in records])
    finished = [record for record in records if record["finished"]] or records
    equal: dict[str, float] = {"epochs": min(len(record["history"]) for record in finished)}
    for key in ("flops", "cpu_seconds"):
        equal[key] = min(_cumulative(record, key)[-1] for record in finished)
    task = records[0]["config"]["task"]
    return {
        "task": task, "score": "R²" if task == "polynomial" else "accuracy", "equal": equal,
        "variants": [_describe(group, shown, equal) for group in variants.values()],
    }  # fmt: skip


def _describe(group: list[Run], shown: list[str], equal: dict[str, float]) -> dict[str, Any]:
    epochs = int(equal["epochs"])
    cpu = [entry["cpu_seconds"] for record in group for entry in record["history"]]
    return {
        "label": label(group[0]["config"], shown),
        "config": without_seed(group[0]["config"]),
        "seeds": [record["config"]["seed"] for record in group], "finished": [record["finished"] for record in group],
        "epochs": [len(record["history"]) for record in group],
        "final": spread([record["best"]["test"] for record in group]),
        "equal_epochs": spread([after(record, epochs) for record in group]),
        "equal_flops": spread([at(record, "flops", equal["flops"]) for record in group]),
        "equal_cpu_seconds": spread([at(record, "cpu_seconds", equal["cpu_seconds"]) for record in group]),
        "parameters": group[0]["parameters"], "mixing_parameters": group[0]["mixing_parameters"],
        "flops_per_epoch": group[0]["flops_per_epoch"], "cpu_seconds_per_epoch": sum(cpu) / len(cpu),
    }  # fmt: skip


def without_seed(config: dict[str, Any]) -> dict[str, Any]:
    """What the runs of one variant have in common."""
    return {key: value for key, value in config.items() if key != "seed"}


def after(record: Run, epochs: int) -> float | None:
    """The test score after this many epochs; None when the run has not reached them."""
    return record["history"][epochs - 1]["test"] if epochs <= len(record["history"]) else None


def at(record: Run, key: str, budget: float, split: str = "test") -> float | None:
    """The score at a given cost, linearly interpolated between epochs.

    None before the first epoch's end, and beyond the last one of a run that did not end by itself.
    """
    spent, scores = _cumulative(record, key), [entry[split] for entry in record["history"]]
    if budget < spent[0] or (budget > spent[-1] and not record["finished"]):
        return None
    for i in range(1, len(spent)):
        if budget < spent[i]:
            return scores[i - 1] + (scores[i] - scores[i - 1]) * (budget - spent[i - 1]) / (spent[i] - spent[i - 1])
    return scores[-1]


def stopped_by_loss(record: Run) -> tuple[int, float] | None:
    """Epochs and test score of the run, had it stopped early by validation loss; None where it would have gone on."""
    history = until_stop(record["history"], record["config"]["patience"], by_loss)
    return None if history is None else (len(history), history[best_epoch(history, by_loss)]["test"])


def spread(values: Sequence[float | None]) -> dict[str, float] | None:
    """Mean and sample standard deviation over the n seeds that have a value; None if none has."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    mean = math.fsum(numbers) / len(numbers)
    variance = math.fsum((x - mean) ** 2 for x in numbers) / max(1, len(numbers) - 1)
    return {"n": len(numbers), "mean": mean, "sd": math.sqrt(variance), "min": min(numbers), "max": max(numbers)}


def label(config: dict[str, Any], shown: Sequence[str] = ()) -> str:
    """The mechanism and whatever differs between the variants of the sweep."""
    mechanism = find_mechanism(config["mechanism"])
    parts = [mechanism.label]
    for key in shown:
        if key != "mechanism" and (mechanism.has_pseudo_heads or key not in _OF_PSEUDO_HEADS):
            value = config[key]
            if value is None:  # as many pseudo-keys as pseudo-queries
                continue
            parts.append(f"{_SHORT.get(key, '')}{value:g}" if isinstance(value, int | float) else f"{value}")
    return " ".join(parts)


def varying(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Fields with more than one value, among those of IHA alone where they are IHA's own; its P is always shown."""
    names = []
    for key in configs[0]:
        own = key in _OF_PSEUDO_HEADS
        values = {str(c[key]) for c in configs if not own or find_mechanism(c["mechanism"]).has_pseudo_heads}
        if key != "seed" and (len(values) > 1 or (key == "num_pseudo_heads" and values)):
            names.append(key)
    return names


def _variant(config: dict[str, Any]) -> tuple:
    return tuple((key, str(value)) for key, value in sorted(without_seed(config).items()))


def _cumulative(record: Run, key: str) -> list[float]:
    total, sums = 0.0, []
    for entry in record["history"]:
        total += entry[key]
        sums.append(total)
    return sums
