"""The model beside `LlamaForCausalLM` of the same width, depth, feed-forward and vocabulary: only attention differs.

Ratios, not times: the two models alternate, round after round, and the best round of each counts. So a busy machine
slows both alike.
"""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.utils import logging

from iha.bench.measure import Times, Watch
from iha.models.cache import cache_bytes
from iha.models.configuration import IHAConfig
from iha.models.modeling import IHAForCausalLM
from iha.models.presets import PRESETS, preset
from iha.ops.backends.band_native import kernel_used
from iha.ops.heap import keep_memory
from iha.ops.products import choose_products
from iha.records import Progress, Record, silent, write_record

VARIANTS: dict[str, dict[str, Any]] = {
    "hybrid": {},  # local IHA and global multi-head layers, 4:1
    "all-iha": {"window": 0, "global_every": None},  # global IHA in every layer
}


@dataclass(frozen=True)
class Settings:
    """What `iha bench model` measures."""

    presets: list[str]
    tokens: int = 2048
    pseudo_heads: int = 2
    new_tokens: int = 32
    rounds: int = 6  # three runs of two
    threads: int | None = None
    compiled: bool = False
    training: bool = True
    decoding: bool = True
    seed: int = 0
    keep_memory: bool = True  # freed memory stays with the process, for both models
    products: bool = True  # training has float32 products by the faster library, for both models

    def __post_init__(self) -> None:
        for name in self.presets:
            if name not in PRESETS:
                raise ValueError(f"no preset {name!r}; there are {', '.join(PRESETS)}")
        if self.rounds < 1 or not 2 < self.new_tokens < self.tokens:
            raise ValueError(f"need at least one round and 2 < new_tokens < tokens: {self}")


def run(settings: Settings, path: Path, command: str, progress: Progress = silent) -> Record:
    """Measure, and write the record after every measurement, so that an interrupted run is not lost."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    kept = settings.keep_memory and keep_memory()
    watch = Watch()
    record = Record.new("model-bench", command=command, config=asdict(settings), seed=settings.seed)
    rows: list[dict[str, Any]] = []
    todo = list(_measurements(settings))
    with progress.task("bench model", total=len(todo)) as task:
        for name, measure in todo:
            task.advance(0, note=name)
            rows.append(measure())
            quiet = watch.judge(row["spread"] for row in rows)
            record = record.finished({"rows": rows, "memory_kept": kept, "quiet": quiet.as_json()})
            write_record(path, record)
            task.advance(1)
    return record


def _measurements(settings: Settings) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    shared = (settings.tokens, settings.pseudo_heads)
    rounds: dict[str, Any] = {"rounds": settings.rounds, "seed": settings.seed}
    decoding = {"new_tokens": settings.new_tokens, **rounds}
    for name in settings.presets if settings.decoding else ():
        for variant in VARIANTS:
            yield f"{name} {variant}: decoding", partial(measure_decoding, name, variant, *shared, **decoding)
        if settings.compiled:
            compiled = partial(measure_decoding, name, "hybrid", *shared, compiled=True, **decoding)
            yield f"{name} hybrid: decoding, compiled", compiled
    # After all decoding: the choice of products stays with the process, and oneDNN is slow with single rows.
    for name in settings.presets if settings.training else ():
        training = partial(measure_training, name, "hybrid", *shared, products=settings.products, **rounds)
        yield f"{name} hybrid: training step", training
        if settings.compiled:
            yield f"{name} hybrid: training step, compiled", partial(training, compiled=True)


def pair(
    name: str, variant: str, num_tokens: int, num_pseudo_heads: int, seed: int
) -> tuple[IHAForCausalLM, LlamaForCausalLM]:
    """An IHA model of this preset and the Llama beside it, both with Llama's gated feed-forward."""
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {tuple(VARIANTS)}, got {variant!r}")
    torch.manual_seed(seed)
    options = {"gated_mlp": True, "hidden_act": "silu", "max_position_embeddings": num_tokens, "eos_token_id": None}
    config = preset(name, num_pseudo_heads=num_pseudo_heads, **options, **VARIANTS[variant])
    model = IHAForCausalLM(config)
    return model, LlamaForCausalLM(llama_like(config))


def llama_like(config: IHAConfig) -> LlamaConfig:
    same = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim",
            "num_key_value_heads", "hidden_act", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings",
            "rope_parameters", "bos_token_id", "eos_token_id", "pad_token_id")  # fmt: skip
    return LlamaConfig(**{name: getattr(config, name) for name in same})


def measure_decoding(
    name: str, variant: str, num_tokens: int, num_pseudo_heads: int, *,
    new_tokens: int = 32, rounds: int = 6, compiled: bool = False, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Tokens per second of `generate` while the context grows to num_tokens, and the bytes of the cache there."""
    iha, llama = pair(name, variant, num_tokens, num_pseudo_heads, seed)
    models: dict[str, PreTrainedModel] = {"iha": iha.eval(), "llama": llama.eval()}
    vocabulary = models["iha"].config.vocab_size
    prompt = torch.randint(3, vocabulary, (1, num_tokens - new_tokens), generator=torch.Generator().manual_seed(seed))
    times = Times({label: [] for label in models})
    for round_ in range(rounds + 1):  # the first warms up
        for label, model in models.items():
            seconds = _seconds_per_token(model, prompt, new_tokens, compiled and label == "iha")
            if round_ > 0:
                times.rounds[label].append(seconds)
    held = {label: cache_bytes(_filled_cache(model, prompt)) for label, model in models.items()}
    return {
        "what": "decoding", "preset": name, "variant": variant, "context": num_tokens, "pseudo_heads": num_pseudo_heads,
        "new_tokens": new_tokens, "rounds": rounds, "seed": seed, "iha_compiled_static_cache": compiled,
        "kernel": kernel_used(models["iha"].config.head_dim),
        "tokens_per_second": {label: 1 / times.best(label) for label in models}, **_compared(times),
        "cache_bytes": held, "cache_ratio": held["iha"] / held["llama"],
        "parameters": {label: model.num_parameters() for label, model in models.items()},
    }  # fmt: skip


def measure_training(
    name: str, variant: str, num_tokens: int, num_pseudo_heads: int, *,
    batch: int = 1, rounds: int = 6, compiled: bool = False, seed: int = 0, products: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Tokens per second of a whole training step: forward, backward, AdamW.

    `compiled` compiles both models, and has the eager IHA take its turns beside them ("iha eager").
    """
    models: dict[str, PreTrainedModel] = dict(
        zip(("iha", "llama"), pair(name, variant, num_tokens, num_pseudo_heads, seed), strict=True)
    )
    found = choose_products() if products else "torch"
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(3, models["iha"].config.vocab_size, (batch, num_tokens), generator=generator)
    optimizers = {label: torch.optim.AdamW(model.train().parameters(), 1e-4) for label, model in models.items()}
    runs: dict[str, Callable[..., Any]] = dict(models)
    if compiled:
        runs = {label: torch.compile(model) for label, model in models.items()} | {"iha eager": models["iha"]}
        optimizers["iha eager"] = optimizers["iha"]
    times = Times({label: [] for label in runs})
    for round_ in range(rounds + 1):  # the first warms up, and compiles
        for label, run in runs.items():
            started = time.perf_counter()
            run(x, labels=x, use_cache=False).loss.backward()
            optimizers[label].step()
            optimizers[label].zero_grad()
            if round_ > 0:
                times.rounds[label].append(time.perf_counter() - started)
    return {
        "what": "training", "preset": name, "variant": variant, "tokens": num_tokens, "pseudo_heads": num_pseudo_heads,
        "batch": batch, "rounds": rounds, "seed": seed, "compiled": compiled,
        "products": found,
        "kernel": kernel_used(models["iha"].config.head_dim),
        "tokens_per_second": {label: batch * num_tokens / times.best(label) for label in runs}, **_compared(times),
        **({"to_eager": _compared(times, "iha eager")} if compiled else {}),
        "parameters": {label: model.num_parameters() for label, model in models.items()},
    }  # fmt: skip


def _compared(times: Times, other: str = "llama") -> dict[str, Any]:
    """Speed relative to the other's: above 1 where IHA is the faster one."""
    pair = (other, "iha")
    return {"ratio": times.ratio(*pair), "ratios": times.ratios(*pair), "spread": times.spread(*pair)}


def _seconds_per_token(model: PreTrainedModel, prompt: Tensor, new_tokens: int, compiled: bool) -> float:
    """Seconds per token inside one `generate` call, without the first token, which includes the prefill."""
    clock = _Clock()
    options: dict[str, Any] = {}
    if compiled:
        config = CompileConfig(mode="default")
        config._compile_all_devices = True  # type: ignore[assignment]  # `generate` compiles on GPUs only, unless told
        options = {"cache_implementation": "static", "compile_config": config}
    logging.set_verbosity_error()
    with torch.no_grad():
        model.generate(  # type: ignore[operator]
            prompt, max_new_tokens=new_tokens, do_sample=False, streamer=clock, **options
        )
    times = clock.times[1:]  # the first is the prompt
    return (times[-1] - times[0]) / (len(times) - 1)  # the mean, so that the occasional growth of a buffer counts


class _Clock:
    """A streamer that records the time of each token."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _: Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        gc.collect()


@torch.no_grad()
def _filled_cache(model: PreTrainedModel, prompt: Tensor) -> Any:
    return model(prompt, use_cache=True, logits_to_keep=1).past_key_values
