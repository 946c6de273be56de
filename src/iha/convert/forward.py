"""From a plain checkpoint to an equivalent IHA model: alpha and R get the warm start, all other weights are copied."""

import os
import re
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from iha.convert.architectures import to_iha
from iha.convert.checkpoint import Checkpoint, check_depth, check_shapes, interpreting, open_checkpoint
from iha.convert.destination import complete_or_absent, copy_companions, write_shards
from iha.layers.interleaved import Collapse, InterleavedHeadAttention
from iha.models import IHAConfig, IHAForCausalLM
from iha.models.remote_code import write_stub
from iha.ops.visibility import Causality
from iha.records import Progress, silent
from iha.records.host import require_bytes

Schedule = Literal["all", "4:1"]
_MIXING = ("alpha_q", "alpha_k", "alpha_v", "collapse")
_FIRST_OF_LAYER = re.compile(r"model\.layers\.(\d+)\.self_attn\.q_proj\.weight")


def from_pretrained(
    source: str | os.PathLike,
    num_pseudo_heads: int | list[int] = 2,
    *,
    num_pseudo_keys: int | None = None,
    layers: list[int] | None = None,
    schedule: Schedule = "all",
    causal: Causality = "token",
    collapse: Collapse = "per_head",
    seed: int = 0,
    routed: bool = False,
    dtype: torch.dtype | None = None,
) -> IHAForCausalLM:
    """Load a Llama, Mistral, Qwen2 or Qwen3 checkpoint as an IHA model with the same logits at step 0.

    Its pseudo-heads get different gradients from the first step on: pseudo-values are perturbed so that the
    perturbations cancel in the output but not in the gradients.

    Args:
        source: a checkpoint directory with safetensors, or the name of a repository on the Hub.
        num_pseudo_heads, num_pseudo_keys, layers, schedule, causal, collapse: see `iha.convert.architectures.to_iha`.
        seed: of the perturbations.
        routed: all pseudo-queries of a head but the last are queries of other heads, and R has a zero for them. So they
            differ from the start, and training can take them in.
        dtype: of the model; None takes that of the checkpoint.
    """
    checkpoint, config = _plan(source, num_pseudo_heads, num_pseudo_keys, layers, schedule, causal, collapse)
    with torch.device("meta"):
        model = IHAForCausalLM(config)
    model = model.to_empty(device="cpu")
    model.to(dtype=dtype or config.dtype or torch.float32)  # type: ignore[call-arg]
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.frequencies()[0]
    for _, tensors in _converted(checkpoint, config, seed, routed):
        model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    return model.eval()


def convert(
    source: str | os.PathLike,
    destination: str | os.PathLike,
    num_pseudo_heads: int | list[int] = 2,
    *,
    num_pseudo_keys: int | None = None,
    layers: list[int] | None = None,
    schedule: Schedule = "all",
    causal: Causality = "token",
    collapse: Collapse = "per_head",
    seed: int = 0,
    routed: bool = False,
    progress: Progress = silent,
) -> IHAConfig:
    """Like `from_pretrained`, but from directory to directory, with one shard in memory at a time.

    Everything is checked before anything is written, and the destination appears complete or not at all.
    """
    checkpoint, config = _plan(source, num_pseudo_heads, num_pseudo_keys, layers, schedule, causal, collapse)
    with complete_or_absent(destination, checkpoint.num_bytes) as directory:
        write_shards(directory, _converted(checkpoint, config, seed, routed), len(checkpoint.shards), progress)
        copy_companions(checkpoint, directory)
        config.architectures = ["IHAForCausalLM"]
        config.save_pretrained(directory)
        write_stub(directory)
    return config


def _plan(source: str | os.PathLike, P: int | list[int], *options: Any) -> tuple[Checkpoint, IHAConfig]:
    checkpoint = open_checkpoint(source)
    check_depth(checkpoint)
    P_k, layers, schedule, causal, collapse = options
    with interpreting(f"{checkpoint.directory / 'config.json'}"):
        config = to_iha(
            checkpoint.config, num_pseudo_heads=P, num_pseudo_keys=P_k, layers=layers, schedule=schedule,
            causal=causal, collapse=collapse,
        )  # fmt: skip
        with torch.device("meta"):
            model = IHAForCausalLM(config)
    expected = {n: tuple(p.shape) for n, p in model.state_dict().items() if n.split(".")[-1] not in _MIXING}
    check_shapes(checkpoint.shapes, expected, bool(config.tie_word_embeddings))
    mixing = [p.numel() * 4 for n, p in model.state_dict().items() if n.split(".")[-1] in _MIXING]
    require_bytes(sum(mixing), f"the mixing of {P} pseudo-heads")
    return checkpoint, config


def _converted(
    checkpoint: Checkpoint, config: IHAConfig, seed: int, routed: bool
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """The converted shards. The mixing weights of a layer go into the shard of its query projection."""
    for shard in checkpoint.shards:
        tensors = checkpoint.load(shard)
        tensors = {n: t for n, t in tensors.items() if not n.endswith("rotary_emb.inv_freq")}
        if config.tie_word_embeddings:
            tensors.pop("lm_head.weight", None)
        for name in list(tensors):
            if match := _FIRST_OF_LAYER.fullmatch(name):
                tensors |= _mixing(config, int(match[1]), seed, tensors[name].dtype, routed)
        yield shard, tensors


def _mixing(
    config: IHAConfig, layer_idx: int, seed: int, dtype: torch.dtype, routed: bool = False
) -> dict[str, Tensor]:
    spec = config.layers[layer_idx]
    if not spec.is_interleaved:
        return {}
    H, G = config.num_attention_heads, config.num_key_value_heads
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed * 1_000_003 + layer_idx)
        fresh = InterleavedHeadAttention(
            H, H, spec.num_pseudo_heads, num_pseudo_keys=spec.num_pseudo_keys, num_kv_heads=G, head_dim=1,
            init="warm_start", causal=config.causal, collapse=config.collapse,  # type: ignore[arg-type]
        )  # fmt: skip
        if routed:
            _route_queries(fresh)
    prefix = f"model.layers.{layer_idx}.self_attn."
    return {prefix + name: getattr(fresh, name).detach().to(dtype) for name in _MIXING}


@torch.no_grad()
def _route_queries(layer: InterleavedHeadAttention) -> None:
    """Pseudo-query p of head h becomes the query of head h + p + 1, except the last, which alone reaches the output."""
    H, P = layer.num_heads, layer.num_pseudo_heads
    heads = torch.arange(H)
    for p in range(P - 1):
        layer.alpha_q[:, :, p] = torch.eye(H)[:, (heads + p + 1) % H]
    layer.collapse.zero_()
    if layer.collapse_kind == "full":
        layer.collapse.view(H, H, P)[heads, heads, -1] = 1
    else:
        layer.collapse[:, -1] = 1


def summary(config: IHAConfig) -> dict[str, Any]:
    """The conversion in numbers."""
    schedule = config.layers
    added = (_mixing(config, index, 0, torch.float32) for index in range(len(schedule)))
    return {
        "model_type": config.model_type,
        "converted_from": (config.converted_from or {}).get("model_type"),
        "layers": len(schedule),
        "iha_layers": sum(spec.is_interleaved for spec in schedule),
        "pseudo_heads": config.num_pseudo_heads,
        "mixing_parameters": sum(t.numel() for tensors in added for t in tensors.values()),
    }
