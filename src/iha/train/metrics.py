"""Where metrics are written during a run: a JSONL file always, TensorBoard, W&B and trackio if asked for."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iha.records import write_text
from iha.train.recipe import Data, Logging

FILE = "metrics.jsonl"


class Metrics:
    """One line per record: {"step": …, "loss": …}. Lines after the step of the loaded checkpoint are removed."""

    def __init__(
        self, directory: Path, settings: Logging, *, resumed_at: int, name: str, config: dict[str, Any]
    ) -> None:
        path = directory / FILE
        kept = [record for record in read_metrics(path) if record["step"] <= resumed_at] if path.exists() else []
        write_text(path, "".join(json.dumps(record) + "\n" for record in kept))
        self.file = path.open("a")
        self.sinks = _sinks(directory, settings, name, config, resumed_at)

    def write(self, step: int, values: dict[str, float]) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self.file.write(json.dumps({"step": step, **finite}) + "\n")
        self.file.flush()
        for sink, _ in self.sinks:
            sink(step, values)

    def close(self) -> None:
        self.file.close()
        for _, close in self.sinks:
            close()


class Meter:
    """Speed since the last reading, everything included."""

    def __init__(self, data: Data, peak: float) -> None:
        """`peak`: FLOPs per second of all processes together."""
        self.tokens, self.peak = data.batch * data.context, peak  # tokens of a step
        self.at: tuple[int, float] | None = None
        self.began = time.monotonic()

    def read(self, step: int, flops: int) -> dict[str, float]:
        """At this step, whose training took so many FLOPs."""
        now = time.monotonic()
        steps, seconds = (1, now - self.began) if self.at is None else (step - self.at[0], now - self.at[1])
        self.at = step, now
        per_second = steps / max(seconds, 1e-9)
        return {"tokens_per_second": per_second * self.tokens, "mfu": per_second * flops / self.peak}


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All records; a last line that a kill cut off is left out."""
    records = []
    for line in path.read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            records.append(record)
    return records


_Sink = tuple[Callable[[int, dict[str, float]], None], Callable[[], None]]


def _sinks(directory: Path, settings: Logging, name: str, config: dict[str, Any], resumed_at: int) -> list[_Sink]:
    sinks: list[_Sink] = []
    if settings.tensorboard:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError("logging.tensorboard needs the package tensorboard: pip install iha[train]") from error
        writer = SummaryWriter(str(directory / "tensorboard"), purge_step=resumed_at + 1)

        def to_tensorboard(step: int, values: dict[str, float]) -> None:
            for key, value in values.items():
                writer.add_scalar(key, value, step)

        sinks.append((to_tensorboard, writer.close))
    for package, project in (("wandb", settings.wandb), ("trackio", settings.trackio)):
        if project is not None:
            sinks.append(_tracker(package, project, name, config))
    return sinks


def _tracker(package: str, project: str, name: str, config: dict[str, Any]) -> _Sink:
    """W&B, and trackio, which has the same three calls."""
    try:
        if package == "wandb":
            import wandb as tracker
        else:
            import trackio as tracker
    except ImportError as error:
        raise ValueError(f"logging.{package} needs the package {package}: pip install {package}") from error
    tracker.init(project=project, name=name, config=config)
    return (lambda step, values: tracker.log({**values, "step": step})), tracker.finish
