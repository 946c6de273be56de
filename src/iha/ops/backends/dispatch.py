"""Which backend does a case: "auto" chooses; a named one that cannot do what is asked raises and says why."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from iha.ops.backends import flash, flex
from iha.ops.masking import Masking
from iha.ops.visibility import Visibility

Backend = Literal["auto", "reference", "sdpa", "banded", "flex", "flash"]
BACKENDS: tuple[str, ...] = get_args(Backend)


@dataclass(frozen=True)
class Case:
    """One call, as far as the choice depends on it."""

    visibility: Visibility
    num_queries: int  # Nq, tokens
    num_keys: int  # N, tokens
    head_dim: int  # D
    per_sequence: bool  # masked by padding or documents
    needs_grad: bool
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(q: Tensor, k: Tensor, v: Tensor, masking: Masking, num_tokens: tuple[int, int]) -> "Case":
        needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
        case = Case(masking.visibility, *num_tokens, q.shape[-1], masking.per_sequence, needs_grad, q.dtype, q.device)
        return replace(case, visibility=_simplified(case))

    @property
    def is_plain(self) -> bool:
        """What `scaled_dot_product_attention` does without a mask tensor: all, or square causal on virtual tokens."""
        if self.per_sequence or self.visibility.window is not None:
            return False
        causal = self.visibility.causal
        return causal is None or (causal == "virtual" and self.num_queries == self.num_keys)


def choose_backend(case: Case, backend: str) -> str:
    name = _best(case) if backend == "auto" else backend
    if reason := _obstacle(name, case):
        raise ValueError(f"backend={name!r} cannot do this: {reason}")
    return name


def _simplified(case: Case) -> Visibility:
    """The same function by the simplest rule: fewer special cases behind, more fast paths hit."""
    rule = case.visibility.clipped(case.num_keys)
    if rule.num_pseudo_heads == 1 and rule.causal == "token":
        rule = replace(rule, causal="virtual")
    newest_token_only = case.num_queries == 1 and (rule.causal == "token" or rule.num_pseudo_heads == 1)
    if newest_token_only and rule.window is None:
        rule = replace(rule, causal=None)  # it sees everything
    return rule


def _best(case: Case) -> str:
    if case.device.type == "cuda":
        if _obstacle("flash", case) is None:
            return "flash"
        if not case.is_plain:
            return "flex"
    return "sdpa" if case.visibility.window is None else "banded"


def _obstacle(name: str, case: Case) -> str | None:
    """Why this backend cannot do this case, or None."""
    window = case.visibility.window
    if name == "sdpa" and window is not None:
        return f"window={window} is a sliding window; use 'banded', 'flex' or 'auto'"
    if name == "banded" and window is None:
        return f"no window binds {case.num_keys} tokens, there is no band; use 'sdpa' or 'auto'"
    if name == "flex":
        return flex.obstacle(case.device, case.needs_grad)
    if name == "flash":
        return flash.obstacle(
            case.visibility, case.head_dim, case.dtype, case.device, case.per_sequence, case.num_queries, case.num_keys
        )
    return None
