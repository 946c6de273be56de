"""The model of a recipe."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from iha.models.configuration import IHAConfig
from iha.models.loading import load_strict, read_config
from iha.models.modeling import IHAForCausalLM
from iha.models.presets import preset
from iha.train.recipe import Model, Recipe
from iha.train.tokenise import load_tokenizer


def model_config(recipe: Recipe, vocabulary: int, end_id: int | None) -> IHAConfig:
    """The configuration for a tokenizer of this many tokens: rounded up to a multiple of 64 unless the recipe says."""
    model = recipe.model
    # IHAConfig itself keeps unknown fields, as transformers wants it: a misspelt one would be ignored.
    if unknown := sorted(model.config.keys() - {field.name for field in dataclasses.fields(IHAConfig)}):
        raise ValueError(f"model.config.{unknown[0]}: IHAConfig has no such field")
    fields: dict[str, Any] = {
        "attention": model.attention, "max_position_embeddings": recipe.data.context, "bos_token_id": None,
        "eos_token_id": end_id, "vocab_size": 64 * math.ceil(vocabulary / 64), **model.config,
    }  # fmt: skip
    if fields["vocab_size"] < vocabulary:
        raise ValueError(f"model.config.vocab_size is {fields['vocab_size']}, the tokenizer has {vocabulary} tokens")
    if model.init_from is not None:
        return _continued(model, fields)
    try:
        return preset(model.preset, **fields) if model.preset else IHAConfig(**fields)
    except TypeError as error:
        raise ValueError(f"model.config: {error}") from error


def check_model(recipe: Recipe) -> IHAConfig:
    """Refuse a model that cannot be built, before data is prepared for it. Its vocabulary may not be known yet."""
    tokenizer = recipe.data.tokenizer
    vocabulary = 1 if tokenizer.kind == "train" else load_tokenizer(tokenizer).size
    return model_config(recipe, vocabulary, end_id=None)


def build_model(recipe: Recipe, config: IHAConfig, device: torch.device | str = "cpu") -> IHAForCausalLM:
    """Initialised from the recipe's seed, or with the weights of `model.init_from`; float64 if the recipe says so."""
    if recipe.model.init_from is not None:
        network = load_strict(recipe.model.init_from, IHAForCausalLM, config=config, dtype=torch.float32)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            network = IHAForCausalLM(config)
        if recipe.model.initialisation == "scaled":
            scale_initialisation(network, recipe.seed)
    network.config.use_cache = False
    if recipe.optimiser.train == "mixing":
        freeze_all_but_mixing(network)
    dtype = torch.float64 if recipe.parallel.precision == "float64" else torch.float32
    return network.to(device=device, dtype=dtype)  # type: ignore[call-arg]


@torch.no_grad()
def scale_initialisation(model: IHAForCausalLM, seed: int) -> None:
    """Embeddings of standard deviation 1; matrices that add to the residual stream divided by √(2 layers).

    With one range for all, a layer's first output is 1/range times as large as the embedding it is added to. Drawn
    matrix by matrix from the seed alone: mechanisms begin with the same backbone, whatever they draw for themselves.
    """
    if model.config.tie_word_embeddings:
        raise ValueError("model.initialisation is 'scaled': tied embeddings would give logits of √width, untie them")
    generator = torch.Generator().manual_seed(seed)
    mixing = mixing_parameters(model)
    for name, weight in model.named_parameters():
        if name in mixing or weight.dim() < 2:
            continue
        spread = 1.0 if "embed_tokens" in name else model.config.initializer_range
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            spread /= math.sqrt(2 * model.config.num_hidden_layers)
        weight.copy_(spread * torch.randn(weight.shape, generator=generator))


def mixing_parameters(model: nn.Module) -> set[str]:
    """Names of what a mechanism adds to the projections: alpha and R, the matrices of talking heads, lambda."""
    attentions = {name for name, _ in model.named_modules() if name.endswith("self_attn")}
    return {name for name, _ in model.named_parameters() if name.rpartition(".")[0] in attentions}


def freeze_all_but_mixing(model: nn.Module) -> None:
    mixing = mixing_parameters(model)
    if not mixing:
        raise ValueError("optimiser.train is 'mixing', and this model has no mixing parameters to train")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in mixing)


def _continued(model: Model, fields: dict[str, Any]) -> IHAConfig:
    """The configuration of the weights to start from, at this recipe's length."""
    if model.preset is not None:
        raise ValueError("model.preset and model.init_from: the weights bring their own size, give one of them")
    directory = Path(str(model.init_from))
    if not (directory / "config.json").is_file():
        raise ValueError(f"model.init_from: {directory} has no config.json; `iha export` and `iha convert` write one")
    before = read_config(directory)
    if before.attention != model.attention:
        raise ValueError(
            f"model.init_from: {directory} has attention {before.attention!r}, the recipe {model.attention!r}"
        )
    changed = {key: value for key, value in fields.items() if key not in ("vocab_size", "attention")}
    if fields["vocab_size"] > before.vocab_size and "vocab_size" not in model.config:
        raise ValueError(
            f"model.init_from: {directory} has vocab_size {before.vocab_size}, too small for the recipe's tokenizer"
        )
    # The schedule follows from the length and other fields, unless it was set layer by layer: by a conversion, an
    # allocation, or growth.
    follows = changed_config(before, layer_schedule=None).layer_schedule == before.layer_schedule
    kept = None if follows and not before.converted_from else before.layer_schedule
    return changed_config(before, **({"layer_schedule": kept} | changed))


def changed_config(config: IHAConfig, **changes: Any) -> IHAConfig:
    """A new configuration with some fields changed; derived fields are derived again."""
    settings = config.to_dict() | changes
    for derived in ("layer_types", "sliding_window", "model_type", "transformers_version", "architectures", "dtype"):
        settings.pop(derived, None)
    return IHAConfig(**settings)
