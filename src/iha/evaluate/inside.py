"""What a trained model's heads do on a text: attention maps, alpha and R, and Algorithm 1 tensor by tensor.

The result is plain JSON for the report's explorer. Each attention weight is stored as one byte, of its square root, so
that small weights stay visible.
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from iha.models import IHAForCausalLM
from iha.models.generation import load
from iha.ops import reference
from iha.records import Record

KIND = "inside"

STEP_TOKENS = 6  # tokens of the walk through Algorithm 1; more cannot be displayed


@torch.no_grad()
def attention_maps(model: PreTrainedModel, token_ids: Tensor) -> list[Tensor]:
    """Per layer (H, N*P, N*P), for token_ids (N,)."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")  # the only implementation that returns attention weights
    try:
        outputs = model(input_ids=token_ids[None], use_cache=False, output_attentions=True)
    finally:
        model.set_attn_implementation(before)
    return [weights[0] for weights in outputs.attentions]


def inspect_models(directories: dict[str, Path], texts: Sequence[str], max_tokens: int, command: str) -> Record:
    """`look_inside` for exported models, by the names to be shown."""
    record = Record.new(KIND, command=command, config={"models": list(directories), "texts": list(texts)})
    loaded = {name: load(str(directory)) for name, directory in directories.items()}
    for name, (model, _) in loaded.items():
        if not isinstance(model, IHAForCausalLM):
            raise ValueError(f"{directories[name]} is a {model.config.model_type!r} model: run `iha convert` first")
        require_common_index(model)
    models: dict[str, PreTrainedModel] = {name: model for name, (model, _) in loaded.items()}
    tokenizer = next(iter(loaded.values()))[1]
    return record.finished(look_inside(models, tokenizer, texts, max_tokens))


def require_common_index(model: PreTrainedModel) -> None:
    """ValueError if a layer has other numbers than the pictures can show: one P, and every head its own."""
    for index, block in enumerate(model.model.layers):
        layer = block.self_attn
        if layer.num_pseudo_keys is not None or layer.num_mixed_heads != layer.num_heads:
            raise ValueError(
                f"layer {index} has num_pseudo_keys={layer.num_pseudo_keys} and "
                f"num_mixed_heads={layer.num_mixed_heads}: only layers with one number P and their own heads are shown"
            )


def look_inside(
    models: dict[str, PreTrainedModel],  # by display name; the walk through Algorithm 1 uses the first
    tokenizer: Any,
    texts: Sequence[str],
    max_tokens: int = 32,
) -> dict[str, Any]:
    """Everything that the explorer shows, for models that share a tokenizer."""
    examples = []
    for text in texts:
        ids = torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"][:max_tokens])
        if not len(ids):
            raise ValueError(f"a text to look at has no tokens: {text!r}")
        maps = {
            name: [as_bytes(weights.sqrt()) for weights in attention_maps(model, ids)] for name, model in models.items()
        }
        examples.append({"tokens": [tokenizer.decode([token]) for token in ids.tolist()], "maps": maps})
    name, model = next(iter(models.items()))
    ids = torch.tensor(tokenizer(texts[0], add_special_tokens=False)["input_ids"][:STEP_TOKENS])
    return {
        "models": {
            name: [describe_layer(layer.self_attn) for layer in model.model.layers] for name, model in models.items()
        },
        "examples": examples,
        "steps": {
            "model": name,
            "tokens": [tokenizer.decode([token]) for token in ids.tolist()],
            "layers": algorithm_steps(model, ids),
        },
    }


def describe_layer(layer: Any) -> dict[str, Any]:
    """Its sizes, and alpha and R where it has them."""
    P = layer.num_pseudo_heads
    facts: dict[str, Any] = {"H": layer.num_heads, "G": layer.num_kv_heads, "P": P, "window": layer.window}
    for name in ("alpha_q", "alpha_k", "alpha_v", "collapse"):
        if hasattr(layer, name):
            facts[name] = rounded(getattr(layer, name))
    return facts


@torch.no_grad()
def algorithm_steps(model: PreTrainedModel, token_ids: Tensor) -> dict[str, dict[str, Any]]:
    """The tensors of Algorithm 1 in every IHA layer, by the layer's number, without the batch axis."""
    inputs: dict[int, Tensor] = {}
    hooks = [
        layer.self_attn.register_forward_pre_hook(
            lambda _, args, kwargs, index=index: inputs.__setitem__(index, args[0] if args else kwargs["x"]),
            with_kwargs=True,
        )
        for index, layer in enumerate(model.model.layers)
    ]
    try:
        model(input_ids=token_ids[None], use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    theta = model.config.rope_parameters["rope_theta"]
    return {
        str(index): layer_steps(layer.self_attn, inputs[index], theta)
        for index, layer in enumerate(model.model.layers)
        if hasattr(layer.self_attn, "alpha_q")
    }


def layer_steps(layer: Any, x: Tensor, theta: float) -> dict[str, Any]:
    """x (1, N, E), the input of the layer's projections. Keys and values of grouped heads are shown per query head."""
    H, G, P, N = layer.num_heads, layer.num_kv_heads, layer.num_pseudo_heads, x.shape[1]
    q, k, v = layer.project(x)  # (1, N, H or G, D)
    pseudo = [
        torch.einsum("mhp,bnmd->bnphd", alpha, heads)  # (1, N, P, H or G, D)
        for alpha, heads in ((layer.alpha_q, q), (layer.alpha_k, k), (layer.alpha_v, v))
    ]
    virtual = [heads.flatten(1, 2) for heads in pseudo]  # (1, N*P, H or G, D)
    positions = torch.arange(N * P)
    positions = positions if layer.rope_positions == "virtual" else positions // P
    rotated = [reference.rotate(heads, positions, theta) for heads in virtual[:2]]
    source = torch.arange(H) * G // H
    scores = torch.einsum("bihd,bjhd->bhij", rotated[0], rotated[1][:, :, source]) * layer.head_dim**-0.5
    index = torch.arange(N * P)
    visible = layer.visibility(index[:, None], index[None, :])  # (N*P, N*P)
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)  # (1, H, N*P, N*P)
    out = torch.einsum("bhij,bjhd->bihd", weights, virtual[2][:, :, source])  # (1, N*P, H, D)
    rows = out.unflatten(1, (N, P))
    if layer.collapse.shape == (H, P):
        collapsed = torch.einsum("hp,bnphd->bnhd", layer.collapse, rows)
    else:
        collapsed = torch.einsum("hmp,bnpmd->bnhd", layer.collapse.unflatten(1, (H, P)), rows)
    tensors = {
        "q": q[0], "k": k[0], "v": v[0],
        "pseudo_q": virtual[0][0], "pseudo_k": virtual[1][0], "pseudo_v": virtual[2][0],
        "weights": weights[0], "pseudo_out": out[0], "out": collapsed[0],
    }  # fmt: skip
    return {name: {"shape": list(tensor.shape), **as_signed_bytes(tensor)} for name, tensor in tensors.items()}


def rounded(tensor: Tensor) -> Any:
    return [round(value, 4) for value in tensor.detach().flatten().tolist()]


def as_bytes(tensor: Tensor) -> str:
    """Numbers from 0 to 1 in 255 steps, base64."""
    return base64.b64encode((tensor.clamp(0, 1) * 255).round().to(torch.uint8).contiguous().numpy().tobytes()).decode()


def as_signed_bytes(tensor: Tensor) -> dict[str, Any]:
    """Numbers of either sign in 254 steps around zero, with the largest magnitude beside them."""
    largest = max(tensor.abs().max().item(), 1e-12)
    steps = (tensor / largest * 127).round().to(torch.int8).contiguous()
    return {"largest": largest, "bytes": base64.b64encode(steps.numpy().tobytes()).decode()}
