"""What a training example of the synthetic tasks costs, and what each way of making it cheaper brings.

python benchmarks/synthetic.py results/synthetic/speed/speed.json
"""

import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from unittest import mock

import torch

from iha.records import Record, output_directory, write_record
from iha.synthetic.config import RunConfig
from iha.synthetic.sweep import ALLOCATOR
from iha.synthetic.trainer import Trainer

SCALES = {
    "2-hop, m = 6, 7": ("binary", (6, 7)),
    "3-hop, m = 5..8": ("ternary", (5, 6, 7, 8)),
    "2-hop, m = 6..10": ("binary", (6, 7, 8, 9, 10)),
}
VARIANTS = [  # mechanism, H, P
    ("multihead", 2, 1), ("multihead", 8, 1), ("iha", 2, 2), ("iha", 2, 4), ("iha", 4, 4), ("iha", 8, 8),
    ("simplicial", 8, 1), ("talking_heads", 8, 1), ("differential", 8, 1), ("knocking_heads", 8, 1), ("strassen", 8, 1),
]  # fmt: skip
_NO_WIDENING = ("iha.ops.backends.kernels._NARROWEST", 1)
_NO_FUSED_PAIRS = ("iha.ops.backends.simplicial_fused._WIDEST", 0)


def milliseconds(
    config: RunConfig,
    threads: int = 1,
    patches: tuple[tuple[str, int], ...] = (),
    kernels: str = "layers",
    steps: int = 3,
) -> float:
    """Of one example, in the best of a few training steps."""
    torch.set_num_threads(threads)
    trainer = Trainer(config, kernels)
    best = float("inf")
    with ExitStack() as stack:
        for target, value in patches:
            stack.enter_context(mock.patch(target, value))
        for number, batch in enumerate(islice(trainer.batches.epoch(0), steps + 1)):
            begin = time.perf_counter()
            trainer.train_batch(batch)
            if number > 0:
                best = min(best, time.perf_counter() - begin)
    return 1e3 * best / config.batch_size


def config_of(scale: str, mechanism: str, H: int, P: int) -> RunConfig:
    task, sizes = SCALES[scale]
    return RunConfig(task, mechanism, sizes, 2000, 64, 64, num_heads=H, num_pseudo_heads=P)


def fresh(*jobs: tuple, allocator: bool = True) -> list[float]:
    """Each job of `milliseconds` in a process of its own, all at once, with the sweep's allocator or the system's."""
    with mock.patch.dict(os.environ, ALLOCATOR if allocator else {}):
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(len(jobs), mp_context=context) as pool:
            return list(pool.map(milliseconds, *zip(*jobs, strict=True)))


def main(path: Path) -> None:
    torch.set_num_threads(1)
    record = Record.new("synthetic-speed", command="python benchmarks/synthetic.py", config={}, seed=0)
    costs = {
        scale: {
            f"{m} H{H}" + (f" P{P}" if P > 1 else ""): fresh((config_of(scale, m, H, P),))[0] for m, H, P in VARIANTS
        }
        for scale in SCALES
    }
    small = next(iter(SCALES))
    iha, simplicial, mha = (config_of(small, *v) for v in (("iha", 8, 8), ("simplicial", 8, 1), ("multihead", 8, 1)))
    gains = {
        "iha H8 P8": fresh((iha,))[0],
        "iha H8 P8, heads of 8 not filled up": fresh((iha, 1, (_NO_WIDENING,)))[0],
        "iha H8 P8, memory given back to the system": fresh((iha,), allocator=False)[0],
        "simplicial H8": fresh((simplicial,))[0],
        "simplicial H8, in blocks": fresh((simplicial, 1, (_NO_FUSED_PAIRS,)))[0],
    }
    threads = {}
    for name, config in (("multihead H8", mha), ("iha H8 P8", iha)):
        (alone,), pair = fresh((config, 2)), fresh((config, 1), (config, 1))
        # Examples per second: of one run on two threads, and of two runs on one thread each, together.
        threads[name] = {"one run, two threads": 1e3 / alone, "two runs, one thread each": sum(1e3 / ms for ms in pair)}
    paper = {}  # the paper's model, in the batches that docs/synthetic.md trains it with
    for m, P in (("multihead", 1), ("iha", 8), ("simplicial", 1)):
        config = replace(config_of("3-hop, m = 5..8", m, 8, P), model="paper", width=128, batch_size=32)
        paper[m] = {kernels: fresh((config, 1, (), kernels))[0] for kernels in ("layers", "states")}
    results = {
        "ms_per_example": costs,
        "paper_ms_per_example": paper,
        "gains_ms_per_example": gains,
        "threads_examples_per_second": threads,
    }
    output_directory(path.parent)
    write_record(path, record.finished(results))
    print(path.read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
