"""From an IHA checkpoint back to a plain one, where mixing is linear in the heads and so folds into the projections.

With P = 1 this always holds. With P > 1 it holds as long as the P pseudo-heads of a head share one key and one query.
Attention then gives the P copies of a key equal weight, which averages the pseudo-values. Anything else is refused: it
computes another function.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from iha.convert.architectures import from_iha
from iha.convert.checkpoint import Checkpoint, check_depth, check_shapes, interpreting, open_checkpoint
from iha.convert.destination import complete_or_absent, copy_companions, write_shards
from iha.convert.forward import _MIXING
from iha.layers.schedule import LayerSpec
from iha.models import IHAConfig, IHAForCausalLM
from iha.records import Progress, silent


def export(source: str | os.PathLike, destination: str | os.PathLike, *, progress: Progress = silent) -> dict[str, Any]:
    """Write an IHA checkpoint as its original or a matching plain architecture, and return the new config.json.

    Everything is checked before anything is written, and the destination appears complete or not at all.
    """
    checkpoint = open_checkpoint(source)
    if checkpoint.config.get("model_type") != IHAConfig.model_type:
        raise ValueError(
            f"{checkpoint.directory} is no IHA checkpoint: model_type {checkpoint.config.get('model_type')!r}"
        )
    check_depth(checkpoint)
    with interpreting(f"{checkpoint.directory / 'config.json'}"):
        config = IHAConfig(**{k: v for k, v in checkpoint.config.items() if k not in ("model_type", "auto_map")})
        for index, spec in enumerate(config.layers):
            if not spec.is_interleaved and spec.mechanism != LayerSpec().mechanism:
                raise ValueError(f"layer {index} is {spec.mechanism}, which no plain architecture computes")
        if config.attention_gate is not None or config.exclusive_attention:
            raise ValueError(
                f"attention_gate={config.attention_gate!r}, exclusive_attention={config.exclusive_attention}: mixing "
                "cannot be folded through the gate or past the own value"
            )
        raw = from_iha(config)
        with torch.device("meta"):
            model = IHAForCausalLM(config)
    expected = {n: tuple(p.shape) for n, p in model.state_dict().items()}
    check_shapes(checkpoint.shapes, expected, bool(config.tie_word_embeddings))
    mixing = _all_mixing(checkpoint)
    folds = {index: _fold(config, index, mixing[index]) for index in mixing}
    with complete_or_absent(destination, checkpoint.num_bytes) as directory:
        write_shards(directory, _plain(checkpoint, config, folds), len(checkpoint.shards), progress)
        copy_companions(checkpoint, directory)
        (directory / "config.json").write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n")
    return raw


Fold = dict[str, Tensor | None]  # projection name to the matrix over heads to fold into it; None for the identity


def _fold(config: IHAConfig, index: int, mixing: dict[str, Tensor]) -> Fold:
    """Matrices over heads, [head, source head]: q_proj and o_proj (H, H), k_proj and v_proj (G, G)."""
    alpha_q, alpha_k, alpha_v, R = (mixing[name].double() for name in _MIXING)
    (H, mixed, P), P_k = alpha_q.shape, alpha_k.shape[2]
    if mixed != H:
        raise ValueError(f"layer {index}: it mixes {H} heads into {mixed}; a plain architecture has its own heads only")
    # (H, H, P): [head, source head, pseudo-head]; a per-head R is the block-diagonal case.
    R = torch.diag_embed(R.t()).permute(1, 2, 0) if config.collapse == "per_head" else R.unflatten(1, (H, P))
    used = R.abs().amax(dim=(0, 1)) > 0  # (P,): which pseudo-heads contribute to the output
    if max(P, P_k) > 1:
        if config.rope_positions == "virtual":
            raise ValueError(
                f"layer {index}: rope_positions='virtual' rotates its {P} pseudo-heads by different angles; "
                "it cannot be folded"
            )
        if not bool((alpha_k == alpha_k[:, :, :1]).all()) or len(alpha_q[:, :, used].unique(dim=2).unbind(2)) > 1:
            raise ValueError(f"layer {index}: its {P} pseudo-heads have learned apart; their mixing cannot be folded")
        if config.causal == "virtual" and bool(used[:-1].any()):
            raise ValueError(f"layer {index}: pseudo-heads before the last reach the output under virtual causality")
    last_used = int(used.nonzero().max()) if bool(used.any()) else 0
    matrices = {
        "q_proj": alpha_q[:, :, last_used].t(),
        "k_proj": alpha_k[:, :, 0].t(),
        "v_proj": alpha_v.mean(dim=2).t(),
        "o_proj": R.sum(dim=2),
    }
    fold: Fold = {n: None if _is_identity(m, mixing["alpha_v"].dtype) else m for n, m in matrices.items()}
    if config.qk_norm and (fold["q_proj"] is not None or fold["k_proj"] is not None):
        raise ValueError(f"layer {index}: QK-norm stands between the projections and their mixing; it cannot be folded")
    return fold


def _is_identity(matrix: Tensor, dtype: torch.dtype) -> bool:
    """Up to the rounding error of a sum of P numbers. Then the projection is left exactly as it is."""
    eye = torch.eye(matrix.shape[0], dtype=matrix.dtype)
    return bool((matrix - eye).abs().max() <= 4 * torch.finfo(dtype).eps)


def _plain(
    checkpoint: Checkpoint, config: IHAConfig, folds: dict[int, Fold]
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    for shard in checkpoint.shards:
        tensors = {n: t for n, t in checkpoint.load(shard).items() if n.split(".")[-1] not in _MIXING}
        for name, tensor in tensors.items():
            parts = name.split(".")
            if "self_attn" not in parts or parts[-2] not in ("q_proj", "k_proj", "v_proj", "o_proj"):
                continue
            matrix = folds.get(int(parts[2]), {}).get(parts[-2])
            if matrix is None or (parts[-2] == "o_proj" and parts[-1] == "bias"):
                continue
            tensors[name] = _absorbed(tensor, matrix, out=parts[-2] == "o_proj")
        yield shard, tensors


def _absorbed(weight: Tensor, matrix: Tensor, out: bool) -> Tensor:
    """A projection (heads*D, E), its bias, or the output projection (E, heads*D), with the matrix folded in."""
    heads = matrix.shape[0]
    if out:  # out_h = sum over m of matrix[h, m] * o_m
        folded = torch.einsum("ehd,hm->emd", weight.double().unflatten(1, (heads, -1)), matrix).flatten(1)
    else:  # q_h = sum over m of matrix[h, m] * q_m
        folded = torch.einsum("hm,md...->hd...", matrix, weight.double().unflatten(0, (heads, -1))).flatten(0, 1)
    return folded.to(weight.dtype)


def _all_mixing(checkpoint: Checkpoint) -> dict[int, dict[str, Tensor]]:
    """Mixing weights of each layer. They are small, so all are loaded at once."""
    from safetensors import safe_open

    mixing: dict[int, dict[str, Tensor]] = {}
    for shard, shapes in checkpoint.shards.items():
        with safe_open(checkpoint.directory / shard, framework="pt") as file:
            for name in shapes:
                if name.split(".")[-1] in _MIXING:
                    mixing.setdefault(int(name.split(".")[2]), {})[name.split(".")[-1]] = file.get_tensor(name)
    return mixing
