"""Does IHA pay in an encoder, an encoder–decoder and on images? Against a multi-head twin of equal FLOPs.

Both have the same width, depth and heads. IHA attends with P = 2 in every layer, four times the attention of the twin;
the twin's feed-forward is wider by as much. Both train on the same batches for the same number of steps.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from iha.accounting import flop_counter
from iha.experiment.architecture_tasks import MECHANISMS, PARTS, TASKS, Task
from iha.experiment.statistics import paired_test, summary
from iha.records import Progress, Record, silent

KIND = "architectures"


def compare(
    name: str,
    *,
    command: str,
    seeds: Sequence[int] = (0, 1, 2),
    rates: Sequence[float] = (2e-3, 6e-3),
    steps: int | None = None,
    progress: Progress = silent,
) -> Record:
    """All runs of one task. Each mechanism has the learning rate that is best for it on the validation part."""
    if name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {name!r}")
    if not seeds or not rates or min(rates) <= 0 or (steps is not None and steps < 1):
        raise ValueError(f"need seeds, positive learning rates and steps: {list(seeds)}, {list(rates)}, {steps}")
    task = TASKS[name]
    steps = task.steps if steps is None else steps
    widths = matched_widths(task)
    config = {"task": name, "steps": steps, "batch": task.batch, "rates": list(rates), "seeds": list(seeds)}
    record = Record.new(KIND, command=command, config=config)
    runs = []
    with progress.task(name, len(MECHANISMS) * len(rates) * len(seeds) * steps) as under_way:
        for mechanism in MECHANISMS:
            for rate in rates:
                for seed in seeds:
                    model = trained(task, mechanism, widths[mechanism], rate, seed, steps, under_way.advance)
                    scores = {part: task.scores(model, part) for part in PARTS}
                    runs.append({"mechanism": mechanism, "rate": rate, "seed": seed, **scores})
    return record.finished({"models": described(task, widths), "runs": runs, **conclusion(runs)})


def matched_widths(task: Task) -> dict[str, int]:
    """Widths of the feed-forward at which both models cost the same. FLOPs are linear in the width."""
    goal = forward_flops(task, "iha", task.feed_forward)
    low, high = (forward_flops(task, "multihead", width) for width in (task.feed_forward, 2 * task.feed_forward))
    per_unit = (high - low) / task.feed_forward
    return {"iha": task.feed_forward, "multihead": task.feed_forward + round((goal - low) / per_unit)}


def forward_flops(task: Task, mechanism: str, width: int) -> int:
    """Of one training batch, counted by torch as it runs; causal attention counts as if nothing were masked."""
    counter = flop_counter()
    with counter, torch.no_grad():
        task.model(mechanism, width)(**next(task.batches(0)))
    return counter.get_total_flops()


def trained(
    task: Task, mechanism: str, width: int, rate: float, seed: int, steps: int, advance: Any = lambda _: None
) -> PreTrainedModel:
    """AdamW, the learning rate rising over the first tenth of the steps and then falling to zero."""
    torch.manual_seed(seed)
    model = task.model(mechanism, width).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
    warm = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warm, (steps - step) / max(1, steps - warm))
    )
    for _, batch in zip(range(steps), task.batches(seed), strict=False):
        optimiser.zero_grad()
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        advance(1)
    return model.eval()


def described(task: Task, widths: dict[str, int]) -> dict[str, Any]:
    found = {}
    for mechanism, width in widths.items():
        parameters = sum(p.numel() for p in task.model(mechanism, width).parameters())
        flops = forward_flops(task, mechanism, width)
        found[mechanism] = {"feed_forward": width, "parameters": parameters, "forward_flops_per_batch": flops}
    return found


def conclusion(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Test scores at each mechanism's best rate, and the differences IHA - multi-head, paired by seed."""
    chosen, tested = {}, {}
    for mechanism in MECHANISMS:
        own = [run for run in runs if run["mechanism"] == mechanism]
        rates = sorted({run["rate"] for run in own})
        losses = {
            rate: summary(run["validation"]["loss"] for run in own if run["rate"] == rate)["mean"] for rate in rates
        }
        chosen[mechanism] = min(losses, key=lambda rate: losses[rate])
        tested[mechanism] = {run["seed"]: run["test"] for run in own if run["rate"] == chosen[mechanism]}
    return {
        "rates": chosen,
        "test": {
            mechanism: {score: summary(s[score] for s in by_seed.values()) for score in ("loss", "accuracy")}
            for mechanism, by_seed in tested.items()
        },
        "difference": {
            score: paired_test(tested["iha"][seed][score] - tested["multihead"][seed][score] for seed in tested["iha"])
            for score in ("loss", "accuracy")
        },
    }
