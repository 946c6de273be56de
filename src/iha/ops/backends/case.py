"""The properties of one attention call that decide which backend can run it."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.autograd import forward_ad

from iha.ops.masking import Masking
from iha.ops.visibility import Visibility


def in_forward_mode() -> bool:
    """Inside torch.func.jvp, jacfwd or a dual level. Our custom operators would silently drop the tangents."""
    return forward_ad._current_level >= 0


def is_exporting() -> bool:
    """Inside torch.export or an export to ONNX. The exported program must run without this package."""
    return torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export()


@dataclass(frozen=True)
class Case:
    visibility: Visibility
    num_queries: int  # Nq, tokens
    num_keys: int  # N, tokens
    head_dim: int  # D
    per_sequence: bool  # masked by padding or documents
    needs_grad: bool
    dtype: torch.dtype
    device: torch.device
    forward_mode: bool = False
    exporting: bool = False
    compiling: bool = False
    dropout: bool = False  # attention weights are dropped at random

    @staticmethod
    def of(
        q: Tensor, k: Tensor, v: Tensor, masking: Masking, num_tokens: tuple[int, int], dropout: bool = False
    ) -> "Case":
        needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
        case = Case(
            masking.visibility, *num_tokens, q.shape[-1], masking.per_sequence, needs_grad, q.dtype, q.device,
            in_forward_mode(), is_exporting(), torch.compiler.is_compiling(), dropout,
        )  # fmt: skip
        return replace(case, visibility=_simplified(case))

    @property
    def is_plain(self) -> bool:
        """Whether `scaled_dot_product_attention` needs no mask tensor: no mask, or virtual causality with Nq = N."""
        if self.per_sequence or self.visibility.window is not None:
            return False
        causal = self.visibility.causal
        return causal is None or (causal == "virtual" and self.num_queries == self.num_keys)

    @property
    def needs_formula(self) -> bool:
        """Whether torch must see every operation, which rules out our custom operators."""
        return self.forward_mode or ((self.exporting or self.dropout) and not self.is_plain)


def _simplified(case: Case) -> Visibility:
    """The simplest rule with the same result: backends have fewer special cases, and more calls take a fast path."""
    # Comparing the window with the length would specialise an exported program to lengths on one side of the window.
    rule = case.visibility if case.exporting else case.visibility.clipped(case.num_keys)
    if rule.per_token == (1, 1) and rule.causal == "token":
        rule = replace(rule, causal="virtual")
    newest_token_only = case.num_queries == 1 and (rule.causal == "token" or rule.num_pseudo_heads == 1)
    if newest_token_only and rule.window is None:
        rule = replace(rule, causal=None)  # it sees everything
    return rule
