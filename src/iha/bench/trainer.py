"""The trainer beside a bare loop over the same model, the memory of its data loader, and the time to its first step.

Trainer and bare loop alternate step by step in one process. The trainer makes a real run, with data, logging and
checkpoints. After each of its steps the bare loop makes one (the same batch, already in memory, forward, backward,
clipping, AdamW). So a busy machine slows both alike, and a batch with several documents costs both the same.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from iha.bench.measure import Times
from iha.records import Progress, Record, silent, write_json, write_record
from iha.records.host import load_average
from iha.train.batches import Batch, Corpus
from iha.train.build import build_model, model_config
from iha.train.loop import Evaluation, train
from iha.train.objective import Objective
from iha.train.optimise import build_optimiser, clip, gradient_norm
from iha.train.prepare import TOKENIZER, data_directory
from iha.train.recipe import Data, Recipe, Source, read_recipe
from iha.train.shards import write_shard
from iha.train.tokenise import Encoded, load_tokenizer


@dataclass(frozen=True)
class Settings:
    recipe: str  # a file
    steps: int = 220  # a little more than the 200 between two checkpoints of laptop-1m
    overrides: tuple[str, ...] = ()
    corpus_megabytes: tuple[int, ...] = (1, 1024)
    first_step: bool = True

    def __post_init__(self) -> None:
        if self.steps < 12:
            raise ValueError(f"steps must be at least 12, got {self.steps}")


def run(settings: Settings, path: Path, command: str, progress: Progress = silent) -> Record:
    record = Record.new("trainer-bench", command=command, config=asdict(settings), seed=0)
    results: dict[str, Any] = {"load_average_before": load_average()}
    results["speed"] = measure_speed(settings, progress)
    results["loader"] = [measure_loader(size) for size in settings.corpus_megabytes]
    if settings.first_step:
        results["first_step"] = measure_first_step(settings)
    record = record.finished(results)
    write_record(path, record)
    return record


def measure_speed(settings: Settings, progress: Progress = silent) -> dict[str, Any]:
    """Tokens per second of both, everything included, and their ratio: 1 where the trainer costs nothing."""
    own = read_recipe(Path(settings.recipe), settings.overrides).checkpoint.every
    every = min(own, settings.steps // 2)  # the recipe's interval, and at least one checkpoint among the steps
    schedule = [f"schedule.steps={settings.steps}", "schedule.warmup=1", f"checkpoint.every={every}"]
    recipe = read_recipe(Path(settings.recipe), [*settings.overrides, *schedule, "validation.every=1000000"])
    with tempfile.TemporaryDirectory() as directory:
        turns = _Turns(recipe, Path(directory))
        train(recipe, Path(directory), evaluations=[Evaluation("bare", 1, turns.after_step)], progress=progress)
    times = Times({"trainer": turns.trainer[1:], "bare": turns.bare[1:]})
    tokens = recipe.data.batch * recipe.data.context
    totals = {side: sum(rounds) for side, rounds in times.rounds.items()}
    counted = len(times.rounds["bare"])
    return {
        "steps": counted,
        "checkpoints": (settings.steps - 1) // every,  # the one after the last step is not timed
        "checkpoint_every": every,
        "tokens_per_second": {side: counted * tokens / total for side, total in totals.items()},
        "ratio": totals["bare"] / totals["trainer"],
        "ratio_of_medians": median(times.rounds["bare"]) / median(times.rounds["trainer"]),
        "ratio_of_bests": times.ratio("bare", "trainer"),
        "spread": times.spread("bare", "trainer"),
    }


class _Turns:
    """After every step of the trainer, one of the bare loop on the same tokens; both timed."""

    def __init__(self, recipe: Recipe, directory: Path) -> None:
        self.recipe, self.directory = recipe, directory
        self.batches: list[Batch] = []
        self.trainer: list[float] = []
        self.bare: list[float] = []
        self.since = time.perf_counter()

    def after_step(self, model: torch.nn.Module, step: int) -> dict[str, float]:
        self.trainer.append(time.perf_counter() - self.since)
        if not self.batches:  # the trainer has prepared them by now
            self._begin()
        started = time.perf_counter()
        self._bare_step(self.batches[step - 1])
        self.since = time.perf_counter()
        self.bare.append(self.since - started)
        return {}

    def _begin(self) -> None:
        """The bare loop's own model, and all batches in memory."""
        recipe, shards = self.recipe, data_directory(self.recipe, self.directory)
        tokenizer = load_tokenizer(recipe.data.tokenizer, shards / TOKENIZER)
        corpus = Corpus(recipe.data, shards, tokenizer, recipe.seed)
        self.batches = [corpus.batch(step) for step in range(recipe.schedule.steps)]
        model = build_model(recipe, model_config(recipe, tokenizer.size, tokenizer.end_id))
        self.objective = Objective(model, recipe.parallel.loss_chunk)
        self.optimiser = build_optimiser(model, recipe.optimiser)

    def _bare_step(self, batch: Batch) -> None:
        with torch.enable_grad():
            for part in batch.split(self.recipe.parallel.micro_batch):
                loss = self.objective(part.tokens, part.labels, part.documents, part.few_targets)
                (loss / batch.num_targets).backward()
        clip(self.objective, gradient_norm(self.objective), self.recipe.optimiser.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)


def measure_loader(megabytes: int, batches: int = 200) -> dict[str, Any]:
    """How much reading random batches from a corpus of this many MB of tokens adds to this process's own memory.

    Only anonymous memory counts: the kernel can evict the pages of mapped files at any time.
    """
    data = Data([Source("random", "stdlib")], context=512, batch=16)
    tokenizer = load_tokenizer(data.tokenizer)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "random"
        place.mkdir()
        rng = np.random.default_rng(0)

        def documents() -> Any:
            for _ in range(megabytes):  # 2 bytes per token
                tokens = rng.integers(0, 256, 1 << 19)
                yield "train", Encoded(tokens, np.ones(len(tokens), bool))

        write_shard(place, 0, documents(), "uint16")
        write_json(place / "source.json", {"fingerprint": "", "shards": 1, "dtype": "uint16"})
        corpus = Corpus(data, Path(directory), tokenizer, seed=0)
        corpus.batch(0)
        before, started = own_bytes(), time.perf_counter()
        for step in range(1, batches + 1):
            corpus.batch(step)
        seconds = time.perf_counter() - started
        grown = own_bytes() - before
    tokens = batches * data.batch * data.context
    return {"corpus_megabytes": megabytes, "grown_bytes": grown, "tokens_per_second": tokens / seconds}


def own_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def measure_first_step(settings: Settings) -> dict[str, Any]:
    """Seconds from the start of `iha train`, data not prepared, to the record of the first step.

    The processor's seconds of it and of its helpers tell a slow start from a busy machine.
    """
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "iha", "train", settings.recipe, *settings.overrides, "logging.every=1"]
        started = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = subprocess.Popen(
            [*command, "--out", directory], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        metrics = Path(directory) / "metrics.jsonl"
        try:
            while not (metrics.exists() and metrics.stat().st_size):
                if process.poll() is not None:
                    raise ValueError(f"{' '.join(command)} ended with exit code {process.returncode}")
                time.sleep(0.02)
            seconds = time.perf_counter() - started
            spent = processor_seconds(process.pid)
        finally:
            process.kill()
            process.wait()
        return {"seconds": seconds, "processor_seconds": spent, "load_average": load_average()}


def processor_seconds(process: int) -> float:
    """What a running process and those of its children that have ended have used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
