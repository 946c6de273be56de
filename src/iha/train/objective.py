"""Next-token cross-entropy, summed: the trainer divides by the number of targets of the whole batch."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from iha.models.modeling import IHAForCausalLM
from iha.train.packing import IGNORED


class Objective(nn.Module):
    """The language model with its loss inside, so that one sharded module holds all parameters.

    With `chunk`, logits exist only for that many tokens at a time and are recomputed in the backward pass. At a
    vocabulary of 128 256 and 8192 tokens they are the largest tensors of a step.
    """

    def __init__(self, model: IHAForCausalLM, chunk: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.chunk = chunk

    def forward(self, tokens: Tensor, labels: Tensor, documents: Tensor | None, few_targets: bool = False) -> Tensor:
        """tokens, labels, documents (B, N) to the sum of the cross-entropies of all targets.

        With `few_targets` logits are computed for the targets alone: where only answers count, a fraction of the work.
        """
        hidden = self.model.model(input_ids=tokens, document_ids=documents, use_cache=False).last_hidden_state
        hidden, labels = hidden.flatten(0, 1), labels.flatten()  # (B N, E), (B N,)
        if few_targets:
            (rows,) = torch.nonzero(labels != IGNORED, as_tuple=True)
            hidden, labels = hidden[rows], labels[rows]
        if self.chunk is None or self.chunk >= len(labels):
            return self._loss(hidden, labels)
        pieces = zip(hidden.split(self.chunk), labels.split(self.chunk), strict=True)
        return torch.stack([checkpoint(self._loss, h, t, use_reentrant=False) for h, t in pieces]).sum()

    def _loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        logits = self.model.lm_head(hidden)  # (tokens, V)
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        return F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
