"""Are the pseudo-heads of a trained model in use? How far apart they are, how many there are in effect, and what
removing one costs.

Four questions per IHA layer, on held-out tokens: do the P² attention patterns of a head differ (total variation), do
the columns of alpha differ (cosine), how many pseudo-heads contribute to the output (effective number), and how much
the loss rises without one of them. Copies of one head would show distance 0, cosine 1 and an effective rank of 1.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from iha.evaluate.inside import require_common_index
from iha.models.generation import load
from iha.records import Progress, Record, silent

KIND = "pseudo-heads"
MIXING = ("alpha_q", "alpha_k", "alpha_v", "collapse")
IGNORED = -100  # label of a token that is not predicted


@dataclass(frozen=True)
class Tokens:
    """What a model is measured on."""

    tokens: Tensor  # (B, N)
    labels: Tensor  # (B, N), the next token or IGNORED
    documents: Tensor | None = None  # (B, N); attention stays inside a document

    @classmethod
    def of_text(cls, tokens: Tensor) -> "Tokens":
        """Every token but the last of each row predicts the next."""
        return cls(tokens, F.pad(tokens[:, 1:], (0, 1), value=IGNORED))

    def rows(self) -> "Iterator[Tokens]":
        for row in range(len(self.tokens)):
            at = slice(row, row + 1)
            yield Tokens(self.tokens[at], self.labels[at], None if self.documents is None else self.documents[at])


@torch.no_grad()
def measure(
    model: PreTrainedModel,
    text: Tokens,
    initial: Mapping[str, Tensor] | None = None,  # the weights before training, to see how far mixing has moved
    progress: Progress = silent,
) -> dict[str, Any]:
    """{"loss", "layers": [one per IHA layer], "summary"}."""
    layers = {index: block.self_attn for index, block in enumerate(model.model.layers) if _has_pseudo_heads(block)}
    if not layers:
        raise ValueError("this model has no IHA layer with more than one pseudo-head: there is nothing to measure")
    require_common_index(model)
    maps: dict[int, list[dict[str, Tensor]]] = {index: [] for index in layers}
    with progress.task("attention of pseudo-heads", total=len(text.tokens)) as bar:
        for row in text.rows():
            for index, (weights, x) in _seen(model, row, layers).items():
                maps[index].append(_of_maps(layers[index], weights, x))
            bar.advance(1)
    loss = held_out_loss(model, text)
    found = []
    removals = sum(2 * layer.num_heads * layer.num_pseudo_heads for layer in layers.values())
    with progress.task("removing pseudo-heads", total=removals) as bar:
        for index, layer in layers.items():
            moved = None
            if initial is not None:
                place = f"model.layers.{index}.self_attn."
                moved = {name: _moved(getattr(layer, name), initial[place + name]) for name in MIXING}
            found.append(
                {
                    "layer": index, "heads": layer.num_heads, "pseudo_heads": layer.num_pseudo_heads,
                    **{name: _mean([part[name] for part in maps[index]]) for name in maps[index][0]},
                    "cosine": {name[-1]: _cosine(getattr(layer, name)) for name in MIXING[:3]},
                    "moved": moved, "removal": _removal(model, layer, text, loss),
                }
            )  # fmt: skip
            bar.advance(2 * layer.num_heads * layer.num_pseudo_heads, note=f"layer {index}")
    return {"loss": loss, "tokens": int((text.labels != IGNORED).sum()), "layers": found, "summary": summary(found)}


def measure_export(name: str, directory: Path, text: str, length: int, sequences: int, command: str) -> Record:
    """`measure` for any checkpoint, on the first `sequences` pieces of `length` tokens of a text."""
    record = Record.new(KIND, command=command, config={"name": name, "length": length, "sequences": sequences})
    model, tokenizer = load(str(directory))
    return record.finished(measure(model, sequences_of(tokenizer, text, length, sequences)))


def sequences_of(tokenizer: Any, text: str, length: int, sequences: int) -> Tokens:
    """The first `sequences` pieces of `length` tokens of a text."""
    ids = torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"][: length * max(0, sequences)])
    if len(ids) < length or length < 2 or sequences < 1:
        raise ValueError(
            f"the text has {len(ids)} tokens: too few for one sequence of {length}, which must be 2 or more"
        )
    return Tokens.of_text(ids[: len(ids) // length * length].view(-1, length))


def summary(layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Over all heads of all layers."""

    def over(values: list[float]) -> dict[str, float]:
        return {"mean": sum(values) / len(values), "least": min(values), "largest": max(values)}

    def flat(nested: Any) -> list[float]:
        return [value for part in nested for value in flat(part)] if isinstance(nested, list) else [nested]

    names = ("patterns_apart", "queries_apart", "contributing", "effective_rank")
    found: dict[str, Any] = {name: over(flat([layer[name] for layer in layers])) for name in names}
    found["pseudo_heads"] = layers[0]["pseudo_heads"]
    found["cosine"] = {name: over([layer["cosine"][name] for layer in layers]) for name in "qkv"}
    for name in ("query", "value", "head"):
        found[f"without_{name}"] = over(flat([layer["removal"][name] for layer in layers]))
    if layers[0]["moved"] is not None:
        found["moved"] = {name: over([layer["moved"][name] for layer in layers]) for name in MIXING}
    return found


def _has_pseudo_heads(block: Any) -> bool:
    return hasattr(block.self_attn, "alpha_q") and block.self_attn.num_pseudo_heads > 1


def _seen(model: PreTrainedModel, row: Tokens, layers: dict[int, Any]) -> dict[int, tuple[Tensor, Tensor]]:
    """Per IHA layer its attention weights (H, N*P, N*P) and its input (1, N, E)."""
    inputs: dict[int, Tensor] = {}

    def keep(index: int) -> Any:
        return lambda _, args, kwargs: inputs.__setitem__(index, args[0] if args else kwargs["x"])

    hooks = [layer.register_forward_pre_hook(keep(index), with_kwargs=True) for index, layer in layers.items()]
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")  # the only implementation that returns attention weights
    try:
        documents = {} if row.documents is None else {"document_ids": row.documents}
        outputs = model(input_ids=row.tokens, use_cache=False, output_attentions=True, **documents)
    finally:
        model.set_attn_implementation(before)
        for hook in hooks:
            hook.remove()
    return {index: (outputs.attentions[index][0], inputs[index]) for index in layers}


def _of_maps(layer: Any, weights: Tensor, x: Tensor) -> dict[str, Tensor]:
    """What attention maps say, per head (H,)."""
    H, G, P = layer.num_heads, layer.num_kv_heads, layer.num_pseudo_heads
    N = x.shape[1]
    W = weights.view(H, N, P, N, P)  # head, query token, pseudo-query, key token, pseudo-key
    # Rows that see more than one token (the others have no choice), by every pair of pseudo-query and pseudo-key.
    chosen = ((W.sum(dim=(0, 2, 4)) > 0).sum(-1) > 1) & (W.sum(dim=3) > 0).all(dim=3).all(dim=2).all(dim=0)  # (N,)
    W = W[:, chosen]
    blocks = W.permute(2, 4, 0, 1, 3).flatten(0, 1)  # (P*P, H, rows, N)
    patterns = blocks / blocks.sum(-1, keepdim=True)
    queries = W.sum(-1).permute(2, 0, 1, 3)  # (P, H, rows, N)
    _, _, v = layer.project(x)
    pseudo = torch.einsum("mgp,nmd->npgd", layer.alpha_v, v[0])[:, :, torch.arange(H) * G // H]  # (N, P, H, D)
    out = torch.einsum("hnpmq,mqhd->hpnd", W, pseudo)  # (H, P, rows, D)
    contributions = (_reach(layer.collapse, H, P)[:, :, None, None] * out).flatten(2).double()  # (H, P, rows * D)
    gram = contributions @ contributions.mT  # (H, P, P)
    return {
        "patterns_apart": _apart(patterns),
        "queries_apart": _apart(queries),
        "contributing": effective_number(gram.diagonal(dim1=1, dim2=2)),
        "effective_rank": effective_number(torch.linalg.eigvalsh(gram).clamp_min(0)),
    }


def _reach(collapse: Tensor, H: int, P: int) -> Tensor:
    """(H, P): how strongly pseudo-head (h, p) reaches the output, of its own head or, with a full R, of all heads."""
    return collapse.view(-1, H, P).norm(dim=0)


def _apart(distributions: Tensor) -> Tensor:
    """Mean total variation distance, per head, between distributions (patterns, H, rows, N); 0 without rows."""
    if not distributions.shape[2]:
        return distributions.new_zeros(distributions.shape[1])
    pairs = combinations(range(len(distributions)), 2)
    distances = [(distributions[a] - distributions[b]).abs().sum(-1).mean(-1) / 2 for a, b in pairs]
    return torch.stack(distances).mean(0)


def effective_number(weights: Tensor) -> Tensor:
    """exp of the entropy of weights (..., P) >= 0: P if all are equal, 1 if one has everything, 0 if none has any."""
    weights = weights.double()
    total = weights.sum(-1, keepdim=True)
    entropy = torch.special.entr(weights / total.clamp_min(1e-300)).sum(-1)
    return torch.where(total[..., 0] > 0, entropy.exp(), torch.zeros_like(entropy))


def _mean(parts: list[Tensor]) -> list[float]:
    return torch.stack(parts).double().mean(0).tolist()


def _cosine(alpha: Tensor) -> float:
    """Mean cosine between the columns (source heads) of two pseudo-heads of the same head."""
    columns = F.normalize(alpha, dim=0)  # (sources, heads, P)
    pairs = combinations(range(alpha.shape[2]), 2)
    return float(torch.stack([(columns[..., a] * columns[..., b]).sum(0).mean() for a, b in pairs]).mean())


def _moved(now: Tensor, before: Tensor) -> float:
    """Distance from the start, relative to its norm."""
    return float((now - before.to(now)).norm() / before.norm())


@torch.no_grad()
def held_out_loss(model: PreTrainedModel, text: Tokens) -> float:
    """Mean cross-entropy per predicted token, in nats."""
    total = targets = 0.0
    for row in text.rows():
        documents = {} if row.documents is None else {"document_ids": row.documents}
        logits = model(input_ids=row.tokens, use_cache=False, **documents).logits
        total += float(F.cross_entropy(logits[0], row.labels[0], ignore_index=IGNORED, reduction="sum"))
        targets += int((row.labels != IGNORED).sum())
    return total / targets


def _removal(model: PreTrainedModel, layer: Any, text: Tokens, loss: float) -> dict[str, Any]:
    """How much the loss rises without pseudo-query p of head h (R is zero there), without pseudo-value p of a KV head
    (its alpha is zero), and, to compare, without the whole head."""
    H, G, P = layer.num_heads, layer.num_kv_heads, layer.num_pseudo_heads
    R = layer.collapse.view(-1, H, P)  # (1, H, P), or (H, H, P) if it is full

    def without(part: Tensor) -> float:
        with _zeroed(part):
            return held_out_loss(model, text) - loss

    return {
        "query": [[without(R[:, h, p]) for p in range(P)] for h in range(H)],
        "value": [[without(layer.alpha_v[:, g, p]) for p in range(P)] for g in range(G)],
        "head": [without(R[:, h]) for h in range(H)],
    }


@contextmanager
def _zeroed(part: Tensor) -> Iterator[None]:
    """`part` is a view into a parameter."""
    kept = part.clone()
    part.zero_()
    try:
        yield
    finally:
        part.copy_(kept)
