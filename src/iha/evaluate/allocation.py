"""Which layers deserve pseudo-heads? What each layer's are worth on held-out text, and the best allocation of a budget.

Per IHA layer the pseudo-queries and the pseudo-keys are ranked by removal, the cheapest first. Then every (P_q, P_k,
window) is tried in this layer alone: how much the loss rises, and what attention and mixing cost. A budget of FLOPs is
filled so that the sum of the rises is least. That the rises add up is an assumption; so the chosen model is measured as
a whole, beside the best model within the budget that has the same numbers in all layers.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from iha.accounting.flops import layer_flops
from iha.accounting.mechanisms import AttentionShape
from iha.convert.resize import Kept, require_token_index, resized
from iha.evaluate.pseudo_heads import Tokens, held_out_loss
from iha.layers.schedule import LayerSpec
from iha.models.configuration import IHAConfig
from iha.models.modeling import IHAForCausalLM
from iha.records import Progress, silent

KIND = "allocation"
_UNITS = 4096  # the budget is counted in so many units, and every cost is rounded up to one


@dataclass(frozen=True)
class Option:
    """One way to have one layer."""

    kept: Kept
    rise: float  # of the held-out loss, if only this layer is so
    flops: int  # attention and mixing of one forward pass

    @property
    def numbers(self) -> tuple[int, int, int | None]:
        return len(self.kept.queries), len(self.kept.keys), self.kept.window


@torch.no_grad()
def allocate(
    model: IHAForCausalLM,
    text: Tokens,
    flops: float,  # budget, in units of global multi-head attention in every layer
    num_tokens: int,  # N of the budget
    windows: Sequence[float] = (1.0,),  # windows to try, as shares of the layer's own
    progress: Progress = silent,
) -> tuple[IHAForCausalLM, dict[str, Any]]:
    """The model within the budget, and what was measured."""
    if not flops > 0 or num_tokens < 1:
        raise ValueError(f"flops must be positive and num_tokens at least 1, got {flops} and {num_tokens}")
    if not windows or not all(0 < share <= 1 for share in windows):
        raise ValueError(f"windows must be shares in (0, 1], got {tuple(windows)}")
    places = [index for index, spec in enumerate(model.config.layers) if spec.is_interleaved]
    if not places:
        raise ValueError("this model has no IHA layer: there is nothing to allocate")
    require_token_index(model.config)
    loss, options = held_out_loss(model, text), {}
    with progress.task("measuring layers", total=len(places)) as bar:
        for index in places:
            options[index] = layer_options(model, index, text, loss, num_tokens, windows)
            bar.advance(1, note=f"layer {index}")
    baseline = len(model.config.layers) * _cost(model.config, LayerSpec(), num_tokens)
    fixed = sum(_cost(model.config, s, num_tokens) for s in model.config.layers if not s.is_interleaved)

    def judged(chosen: dict[int, Option]) -> dict[str, Any]:
        kept = {index: option.kept for index, option in chosen.items()}
        return {
            "loss": held_out_loss(resized(model, kept), text),
            "predicted": loss + sum(option.rise for option in chosen.values()),
            "flops": (fixed + sum(option.flops for option in chosen.values())) / baseline,
            "layers": {str(index): asdict(part) for index, part in kept.items()},
        }

    chosen = solve(options, flops * baseline - fixed, lambda least: (fixed + least) / baseline)
    uniform = [judged(same) for same in _uniform(options, flops * baseline - fixed)]
    results = {
        "loss": loss,
        "flops": sum(_cost(model.config, spec, num_tokens) for spec in model.config.layers) / baseline,
        "allocated": judged(chosen),
        "uniform": min(uniform, key=lambda found: found["loss"], default=None),
        "options": {str(index): [asdict(option) for option in found] for index, found in options.items()},
    }
    return resized(model, {index: option.kept for index, option in chosen.items()}), results


def layer_options(
    model: IHAForCausalLM, index: int, text: Tokens, loss: float, num_tokens: int, windows: Sequence[float]
) -> list[Option]:
    """Every (P_q, P_k, window) of one layer, the other layers as they are."""
    spec = model.config.layers[index]
    (P_q, P_k), W = spec.per_token, spec.window
    everything = Kept(tuple(range(P_q)), tuple(range(P_k)), W)

    def rise(kept: Kept) -> float:
        return 0.0 if kept == everything else held_out_loss(resized(model, {index: kept}), text) - loss

    queries = nested(everything.queries, lambda kept: rise(Kept(kept, everything.keys, W)))
    keys = nested(everything.keys, lambda kept: rise(Kept(everything.queries, kept, W)))
    reach = num_tokens if W is None else W
    sizes = {W if share == 1 else max(1, int(share * reach)): None for share in windows}  # in order, without repeats
    found = []
    for kept in (Kept(q, k, window) for q in queries for k in keys for window in sizes):
        shape = _resized_spec(spec, kept)
        found.append(Option(kept, rise(kept), _cost(model.config, shape, num_tokens)))
    return found


def nested(everything: tuple[int, ...], rise: Callable[[tuple[int, ...]], float]) -> list[tuple[int, ...]]:
    """Subsets of every size, each without the member of the one before whose removal costs least."""
    found = [everything]
    while len(found[-1]) > 1:
        found.append(min((tuple(p for p in found[-1] if p != out) for out in found[-1]), key=rise))
    return found


def solve(
    options: dict[int, list[Option]],
    budget: float,
    share: Callable[[float], float] = float,  # how a sum of FLOPs is named in the error
) -> dict[int, Option]:
    """One option per layer within the budget, with the least sum of rises (dynamic programming over units of it)."""
    least = sum(min(option.flops for option in found) for found in options.values())
    if least > budget:
        raise ValueError(f"the smallest layers already cost {share(least):.4g} of global attention; the budget is less")
    unit = budget / _UNITS
    best: dict[int, tuple[float, dict[int, Option]]] = {0: (0.0, {})}  # by units spent
    for index, found in options.items():
        after: dict[int, tuple[float, dict[int, Option]]] = {}
        for spent, (total, chosen) in best.items():
            for option in found:
                now = spent + -int(-option.flops // unit)
                if now <= _UNITS and (now not in after or total + option.rise < after[now][0]):
                    after[now] = total + option.rise, {**chosen, index: option}
        best = after
    if not best:  # the smallest fit, but not rounded up to units
        return {index: min(found, key=lambda option: option.flops) for index, found in options.items()}
    return min(best.values(), key=lambda entry: entry[0])[1]


def _uniform(options: dict[int, list[Option]], budget: float) -> list[dict[int, Option]]:
    """The choices within the budget that have the same numbers and window in all layers."""
    tables = {index: {option.numbers: option for option in found} for index, found in options.items()}
    common = set.intersection(*(set(table) for table in tables.values()))
    same = [{index: table[numbers] for index, table in tables.items()} for numbers in common]
    return [chosen for chosen in same if sum(option.flops for option in chosen.values()) <= budget]


def _resized_spec(spec: LayerSpec, kept: Kept) -> LayerSpec:
    P, P_k = len(kept.queries), len(kept.keys)
    return LayerSpec(spec.mechanism, kept.window, P, None if P_k == P else P_k, spec.num_mixed_heads)


def _cost(config: IHAConfig, spec: LayerSpec, num_tokens: int) -> int:
    shape = AttentionShape(
        config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim,
        causal=config.causal, collapse=config.collapse, bias=config.attention_bias,  # type: ignore[arg-type]
    )  # fmt: skip
    flops = layer_flops(shape, spec, num_tokens)
    return flops.attention + flops.mixing
