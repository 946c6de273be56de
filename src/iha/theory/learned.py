"""Learned, not only constructed: Theorems 1, 3 and 4 under gradient descent (`iha verify --train`).

*Filter banks*: linear attention on [X, I] with every weight free, on a directed ring whose powers are orthogonal, so
that a layer with r attention matrices that do not depend on X leaves at least √(1 − r/k) (see `filter_bound`).
*CPM-3*: a one-layer softmax transformer with embeddings and a ReLU MLP, on fresh random sequences.
All runs of a task have the same steps, batches, optimiser and schedule; only the attention differs.
"""

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from iha.records import Progress, Record, silent
from iha.synthetic.tasks.cpm3 import count_matches
from iha.synthetic.tasks.polynomial import filter_bank
from iha.theory.cpm3 import Task
from iha.theory.learned_models import CountModel, FilterModel
from iha.theory.polynomial_filters import ceil_sqrt

CPM3 = Task(M=4, G=10, largest=7)  # 10 ≡ 2 (mod 4), so the two orders of a pair differ


@dataclass(frozen=True)
class Run:
    """One trained model. `error` is the task's: relative RMS error, or the share of counts that are wrong."""

    task: str
    kind: str  # "MHA" or "IHA"
    heads: int
    pseudo_heads: int
    parameters: int
    seed: int
    steps: int
    error: float
    seconds: float

    def as_json(self) -> dict:
        return {key: round(v, 6) if isinstance(v, float) else v for key, v in asdict(self).items()}


Loss = Callable[[nn.Module, dict[str, Tensor], Tensor, Tensor], Tensor]
Batch = Callable[[torch.Generator, int], tuple[Tensor, Tensor]]  # (generator, seed) -> inputs, targets


def train(
    models: list[nn.Module], seeds: list[int], batch: Batch, loss: Loss, steps: int, lr: float
) -> dict[str, Tensor]:
    """Train one model per seed, all at once (vmap). They share the steps, but neither data nor gradients.

    AdamW, warm-up over a twentieth, cosine decay to nothing, each model's gradient clipped to norm 1.
    Returns the trained parameters, stacked over the seeds.
    """
    parameters, _ = stack_module_state(models)
    generators = [torch.Generator().manual_seed(1_000_003 + seed) for seed in seeds]
    optimiser = torch.optim.AdamW(list(parameters.values()), lr=lr, weight_decay=0.0)
    for step in range(steps):
        factor = min(1.0, (step + 1) / (steps / 20)) * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimiser.param_groups[0]["lr"] = lr * factor
        optimiser.zero_grad(set_to_none=True)
        losses = evaluate(models[0], parameters, generators, seeds, batch, loss)
        losses.sum().backward()
        gradients = [p.grad for p in parameters.values() if p.grad is not None]
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)  # (seeds,)
        for g in gradients:
            g.mul_((1 / norms.clamp_min(1.0)).view(-1, *(1,) * (g.dim() - 1)))
        optimiser.step()
    return {name: p.detach() for name, p in parameters.items()}


def evaluate(
    model: nn.Module,
    parameters: dict[str, Tensor],
    generators: list[torch.Generator],
    seeds: list[int],
    batch: Batch,
    loss: Loss,
) -> Tensor:
    """The loss of every seed's model on its own next batch: (seeds,)."""
    drawn = [batch(generator, seed) for generator, seed in zip(generators, seeds, strict=True)]
    inputs, targets = (torch.stack(t) for t in zip(*drawn, strict=True))
    return torch.vmap(lambda p, x, y: loss(model, p, x, y))(parameters, inputs, targets)


def ring(N: int, seed: int) -> Tensor:
    """A directed ring through the nodes in random order: a permutation matrix, A^N = I and no smaller power."""
    order = torch.randperm(N, generator=torch.Generator().manual_seed(seed))
    A = torch.zeros(N, N)
    A[order, order.roll(1)] = 1
    return A


def squared_error(model: nn.Module, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
    return (functional_call(model, parameters, (x,)) - y).square().mean()


def relative_square(model: nn.Module, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
    return squared_error(model, parameters, x, y) / y.square().mean()


def cross_entropy(model: nn.Module, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(functional_call(model, parameters, (x,)).flatten(0, 1), y.flatten())


def share_wrong(model: nn.Module, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
    return (functional_call(model, parameters, (x,)).argmax(-1) != y).float().mean()


@dataclass(frozen=True)
class Experiment:
    """One row of the comparison, for several seeds."""

    task: str  # "filters" or "cpm3"
    kind: str  # "IHA" (with P = H) or "MHA"
    heads: int
    size: int  # k, or N_max
    steps: int

    def name(self) -> str:
        return f"filters k={self.size}" if self.task == "filters" else f"cpm3 N={self.size}"

    def run(self, seeds: list[int]) -> list[Run]:
        models, batch, loss, error, lr = (self.filters if self.task == "filters" else self.cpm3)(seeds)
        started = time.perf_counter()
        parameters = train(models, seeds, batch, loss, self.steps, lr)
        seconds = (time.perf_counter() - started) / len(seeds)
        with torch.no_grad():
            unseen = [torch.Generator().manual_seed(7_000_003 + seed) for seed in seeds]
            errors = torch.stack([evaluate(models[0], parameters, unseen, seeds, batch, error) for _ in range(20)])
        errors = errors.mean(0).sqrt() if self.task == "filters" else errors.mean(0)
        count = sum(p.numel() for p in models[0].parameters())
        P = self.heads if self.kind == "IHA" else 1
        return [
            Run(self.name(), self.kind, self.heads, P, count, seed, self.steps, e, seconds)
            for seed, e in zip(seeds, errors.tolist(), strict=True)
        ]

    def filters(self, seeds: list[int], N: int = 12, d: int = 2) -> tuple[list[nn.Module], Batch, Loss, Loss, float]:
        models: list[nn.Module] = [FilterModel(self.kind, self.heads, N, d, self.size, seed) for seed in seeds]
        rings = {seed: ring(N, seed) for seed in seeds}

        def batch(generator: torch.Generator, seed: int) -> tuple[Tensor, Tensor]:
            X = torch.randn(16, N, d, generator=generator)
            return X, filter_bank(rings[seed], X, self.size)

        return models, batch, squared_error, relative_square, 3e-2

    def cpm3(self, seeds: list[int]) -> tuple[list[nn.Module], Batch, Loss, Loss, float]:
        models: list[nn.Module] = [CountModel(self.kind, self.heads, self.size, CPM3.largest + 1, s) for s in seeds]

        def batch(generator: torch.Generator, seed: int) -> tuple[Tensor, Tensor]:
            x = torch.randint(0, CPM3.largest + 1, (64, self.size), generator=generator)
            return x, count_matches(x, CPM3.M, CPM3.G)

        return models, batch, cross_entropy, share_wrong, 3e-3


def learn(seed: int, command: str, progress: Progress = silent, experiments: list[Experiment] | None = None) -> Record:
    """Four seeds of every experiment."""
    experiments = plan() if experiments is None else experiments
    record = Record.new("learned", command=command, config={"experiments": list(map(asdict, experiments))}, seed=seed)
    return record.finished([run.as_json() for run in train_all(experiments, [seed + i for i in range(4)], progress)])


def plan(k_values: tuple[int, ...] = (4, 9), n: int = 8, steps: dict[str, int] | None = None) -> list[Experiment]:
    """IHA with ⌈√k⌉ heads, MHA with ⌈√k⌉, k and some numbers of heads between; for CPM-3 the same with N_max for k."""
    steps = steps or {"filters": 4000, "cpm3": 1000}
    rows = []
    for k in k_values:
        H = ceil_sqrt(k)
        rows += [Experiment("filters", "IHA", h, k, steps["filters"]) for h in range(1, H + 1)]
        rows += [Experiment("filters", "MHA", h, k, steps["filters"]) for h in sorted({1, H, (H + k) // 2, k})]
    H = ceil_sqrt(n)
    rows += [Experiment("cpm3", "IHA", h, n, steps["cpm3"]) for h in sorted({1, 2, H})]
    rows += [Experiment("cpm3", "MHA", h, n, steps["cpm3"]) for h in sorted({1, 2, H, n})]
    return rows


def train_all(experiments: list[Experiment], seeds: list[int], progress: Progress = silent) -> list[Run]:
    """All experiments, one process per core: they are small and independent."""
    workers = max(1, min(os.cpu_count() or 1, len(experiments)))
    runs: list[list[Run]] = [[] for _ in experiments]
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        # The long ones first, so that no core waits at the end.
        order = sorted(range(len(experiments)), key=lambda i: -experiments[i].heads)
        pending = {pool.submit(experiments[i].run, seeds): i for i in order}
        with progress.task("training", total=len(experiments)) as task:
            for future in as_completed(pending):
                runs[pending[future]] = future.result()
                task.advance(1, note=experiments[pending[future]].name())
    return [run for group in runs for run in group]
