"""Held-out loss, source by source."""

import torch

from iha.train.batches import Batch, Corpus
from iha.train.objective import Objective
from iha.train.packing import IGNORED
from iha.train.parallel import Processes


def validation_losses(
    objective: Objective, corpus: Corpus, processes: Processes, *, sequences: int, micro_batch: int
) -> dict[str, float]:
    """Mean loss per target of each source's first held-out sequences; sources without any are left out."""
    losses = {}
    for name in corpus.sources["validation"]:
        numbers = corpus.validation(name, sequences)
        total = targets = 0.0
        stride = micro_batch * processes.world
        for start in range(0, len(numbers), stride):
            # Sharded layers communicate, so every process takes part, with an empty share if no sequence is left.
            own = numbers[start : start + stride][processes.rank :: processes.world]
            batch = corpus.validation_batch(name, own or numbers[:1]).to(processes.device)
            if not own:
                batch = Batch(batch.tokens, torch.full_like(batch.labels, IGNORED), batch.documents, few_targets=True)
            total += float(objective(batch.tokens, batch.labels, batch.documents, batch.few_targets))
            targets += batch.num_targets
        total, targets = processes.sum(total, targets)
        if targets:
            losses[name] = total / targets
    return losses
