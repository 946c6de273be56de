"""Loading that refuses incomplete checkpoints, for which `from_pretrained` only warns."""

import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel

from iha.models.configuration import IHAConfig
from iha.records import read_json


def read_config(directory: Path) -> IHAConfig:
    """The configuration in a directory. ValueError names the file if it is not one of this model."""
    path = directory / "config.json"
    settings = read_json(path)
    kind = settings.get("model_type") if isinstance(settings, dict) else None
    if kind != IHAConfig.model_type:
        hint = ": run `iha convert` first" if kind else ""
        raise ValueError(f"{path} is no configuration of this model, its model_type is {kind!r}{hint}")
    try:
        return IHAConfig.from_dict(settings)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def load_strict(source: str | os.PathLike, model_class: Any = AutoModelForCausalLM, **options: Any) -> PreTrainedModel:
    """`from_pretrained`, but a missing tensor, a wrong shape or a truncated file is a ValueError that names it.

    `model_class` is a model or an Auto class of `transformers`; `options` are those of its `from_pretrained`. Weights
    are read from safetensors only: nothing is unpickled.
    """
    if Path(source).is_dir() and not any(Path(source).glob("*.safetensors")):
        raise ValueError(
            f"{source} has no safetensors file; other formats are not read, for they can run code. Convert with "
            "`AutoModelForCausalLM.from_pretrained(...).save_pretrained(...)` where you trust the file"
        )
    options = {**options, "output_loading_info": True, "ignore_mismatched_sizes": True, "use_safetensors": True}
    try:
        model, info = model_class.from_pretrained(source, **options)
    except SafetensorError as error:
        raise ValueError(f"{source}: not a whole safetensors file: {error}") from error
    where = f"{source} does not fit its config.json as {type(model).__name__}"
    if mismatched := sorted(info["mismatched_keys"]):
        name, found, expected = mismatched[0]
        hint = " (vocab_size?)" if "embed_tokens" in name or "lm_head" in name else ""
        raise ValueError(f"{where}: {name} has shape {tuple(found)}, not {tuple(expected)}{hint}")
    if missing := sorted(info["missing_keys"]):
        raise ValueError(f"{where}: it lacks {len(missing)} tensors, among them {', '.join(missing[:3])}")
    return model
