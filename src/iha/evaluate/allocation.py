"""Which layers deserve pseudo-heads? What each layer's are worth on held-out text, and the best allocation of a budget.

Per IHA layer the pseudo-queries and the pseudo-keys are ranked by removal, the cheapest first. Then every (P_q, P_k,
window) is tried in this layer alone: how much the loss rises, and what it costs. A budget of FLOPs, time or cache is
filled so that the sum of the rises is least. That the rises add up is an assumption; so the chosen model is measured as
a whole, beside the best model within the budget that has the same numbers in all layers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import torch

from iha.accounting.cache_bytes import layer_cache_bytes
from iha.accounting.flops import layer_flops
from iha.accounting.mechanisms import AttentionShape
from iha.convert.resize import Kept, require_token_index, resized
from iha.evaluate.budget import Budget, Choice, Option, solve, total, uniform
from iha.evaluate.pseudo_heads import Tokens, held_out_loss
from iha.layers.schedule import LayerSpec
from iha.models.configuration import IHAConfig
from iha.models.modeling import IHAForCausalLM
from iha.records import Progress, silent

KIND = "allocation"
Latencies = Callable[[AttentionShape, Sequence[LayerSpec]], Mapping[LayerSpec, float]]  # times of layers, in any unit
Costs = Mapping[LayerSpec, Mapping[str, float]]  # of every layer that is possible, by the names of `Budget`


@torch.no_grad()
def allocate(
    model: IHAForCausalLM,
    text: Tokens,
    budget: Budget,
    num_tokens: int,  # N of the budget
    windows: Sequence[float] = (1.0,),  # windows to try, as shares of the layer's own
    latencies: Latencies | None = None,  # measures; a budget of latency needs it
    progress: Progress = silent,
) -> tuple[IHAForCausalLM, dict[str, Any]]:
    """The model within the budget, and what was measured."""
    if num_tokens < 1:
        raise ValueError(f"num_tokens must be at least 1, got {num_tokens}")
    if not windows or not all(0 < share <= 1 for share in windows):
        raise ValueError(f"windows must be shares in (0, 1], got {tuple(windows)}")
    if budget.latency is not None and latencies is None:
        raise ValueError(f"a budget of latency, {budget.latency:g}, needs times of layers")
    layers = model.config.layers
    places = [index for index, spec in enumerate(layers) if spec.is_interleaved]
    if not places:
        raise ValueError("this model has no IHA layer: there is nothing to allocate")
    require_token_index(model.config)
    costs = _costs(model.config, num_tokens, windows, latencies if budget.latency is not None else None)
    names = tuple(costs[LayerSpec()])
    whole = {name: len(layers) * costs[LayerSpec()][name] for name in names}
    fixed = {name: sum(costs[spec][name] for spec in layers if not spec.is_interleaved) for name in names}
    left = {name: share * whole[name] - fixed[name] for name, share in budget.shares.items()}

    def share(name: str, of_iha_layers: float) -> float:
        return (fixed[name] + of_iha_layers) / whole[name]

    loss, options = held_out_loss(model, text), {}
    with progress.task("measuring layers", total=len(places)) as bar:
        for index in places:
            options[index] = layer_options(
                model, index, text, loss, costs, sizes_of(layers[index], num_tokens, windows)
            )
            bar.advance(1, note=f"layer {index}")

    def judged(chosen: Choice) -> dict[str, Any]:
        kept = {index: option.kept for index, option in chosen.items()}
        return {
            "loss": held_out_loss(resized(model, kept), text),
            "predicted": loss + sum(option.rise for option in chosen.values()),
            **{name: share(name, total(chosen, name)) for name in names},
            "layers": {str(index): asdict(part) for index, part in kept.items()},
        }

    chosen = solve(options, left, share)
    same = [judged(choice) for choice in uniform(options, left)]
    results = {
        "loss": loss,
        **{name: sum(costs[spec][name] for spec in layers) / whole[name] for name in names},
        "allocated": judged(chosen),
        "uniform": min(same, key=lambda found: found["loss"], default=None),
        "options": {str(index): [asdict(option) for option in found] for index, found in options.items()},
    }
    return resized(model, {index: option.kept for index, option in chosen.items()}), results


def layer_options(
    model: IHAForCausalLM, index: int, text: Tokens, loss: float, costs: Costs, windows: Sequence[int | None]
) -> list[Option]:
    """Every (P_q, P_k, window) of one layer, the other layers as they are."""
    spec = model.config.layers[index]
    (P_q, P_k), W = spec.per_token, spec.window
    everything = Kept(tuple(range(P_q)), tuple(range(P_k)), W)

    def rise(kept: Kept) -> float:
        return 0.0 if kept == everything else held_out_loss(resized(model, {index: kept}), text) - loss

    queries = nested(everything.queries, lambda kept: rise(Kept(kept, everything.keys, W)))
    keys = nested(everything.keys, lambda kept: rise(Kept(everything.queries, kept, W)))
    tried = (Kept(q, k, window) for q in queries for k in keys for window in windows)
    return [Option(k, rise(k), costs[_resized_spec(spec, len(k.queries), len(k.keys), k.window)]) for k in tried]


def nested(everything: tuple[int, ...], rise: Callable[[tuple[int, ...]], float]) -> list[tuple[int, ...]]:
    """Subsets of every size, each without the member of the one before whose removal costs least."""
    found = [everything]
    while len(found[-1]) > 1:
        found.append(min((tuple(p for p in found[-1] if p != out) for out in found[-1]), key=rise))
    return found


def sizes_of(spec: LayerSpec, num_tokens: int, shares: Sequence[float]) -> list[int | None]:
    """The windows that are these shares of a layer's own, in order and without repeats."""
    reach = num_tokens if spec.window is None else spec.window
    return list(dict.fromkeys(spec.window if share == 1 else max(1, int(share * reach)) for share in shares))


def _possible(spec: LayerSpec, num_tokens: int, shares: Sequence[float]) -> Iterator[LayerSpec]:
    """The layers that one IHA layer can become."""
    P_q, P_k = spec.per_token
    for q, k, window in product(range(1, P_q + 1), range(1, P_k + 1), sizes_of(spec, num_tokens, shares)):
        yield _resized_spec(spec, q, k, window)


def _resized_spec(spec: LayerSpec, P_q: int, P_k: int, window: int | None) -> LayerSpec:
    return LayerSpec(spec.mechanism, window, P_q, None if P_k == P_q else P_k, spec.num_mixed_heads)


def _costs(config: IHAConfig, num_tokens: int, shares: Sequence[float], latencies: Latencies | None) -> Costs:
    """FLOPs (attention and mixing), cache bytes and, if they are measured, times of the layers that can occur."""
    shape = AttentionShape(
        config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim,
        causal=config.causal, collapse=config.collapse, bias=config.attention_bias, gate=config.attention_gate,  # type: ignore[arg-type]
    )  # fmt: skip
    resizable = [spec for spec in config.layers if spec.is_interleaved]
    possible = [layer for spec in resizable for layer in _possible(spec, num_tokens, shares)]
    specs = list(dict.fromkeys([LayerSpec(), *config.layers, *possible]))
    times = None if latencies is None else latencies(shape, specs)
    found: dict[LayerSpec, dict[str, float]] = {}
    for spec in specs:
        flops, cache = layer_flops(shape, spec, num_tokens), layer_cache_bytes(shape, spec, num_tokens)
        assert cache is not None, f"a decoder's {spec.mechanism} layer has a cache"
        found[spec] = {"flops": flops.attention + flops.mixing, "cache": cache}
        if times is not None:
            found[spec]["latency"] = times[spec]
    return found
