"""A run's checkpoint as a Hugging Face directory: weights, configuration, tokenizer, chat template."""

import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from transformers import GenerationConfig, PreTrainedTokenizerFast

from iha.models.loading import read_config
from iha.models.modeling import IHAForCausalLM
from iha.records import output_directory, read_json
from iha.train.build import changed_config
from iha.train.chat import FORMATS
from iha.train.checkpoints import STATE, complete_checkpoints
from iha.train.prepare import TOKENIZER
from iha.train.recipe import Recipe, Tokenizer
from iha.train.tokenise import load_tokenizer
from iha.train.typed import build

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def export(run: Path, out: Path, *, step: int | None = None, dtype: str = "float32") -> int:
    """The newest complete checkpoint of a run directory, or that of `step`, written to `out`. Returns its step."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if not (run / "config.json").is_file():
        raise ValueError(f"{run} is not the directory of a training run: it has no config.json")
    path = _chosen(run, step)
    state = read_json(path / STATE)
    recipe = build(Recipe, state["recipe"], str(path / STATE))
    config = read_config(run)
    if "layer_schedule" in state:  # that of this step: growth may have changed it since
        config = changed_config(config, layer_schedule=state["layer_schedule"])
    model = IHAForCausalLM(config)
    missing, unexpected = model.load_state_dict(checkpoint_tensors(path, "model."), strict=False)
    lacking = [name for name in missing if name not in model.all_tied_weights_keys]
    if lacking or unexpected:
        raise ValueError(f"{path} does not fit {run / 'config.json'}: {[*lacking, *unexpected][0]}")
    model.config.use_cache = True
    tokenizer = _tokenizer(recipe, run)
    output_directory(out)
    model.generation_config = GenerationConfig(eos_token_id=_stops(tokenizer), pad_token_id=tokenizer.pad_token_id)
    model.to(dtype=DTYPES[dtype]).save_pretrained(out)  # type: ignore[call-arg]
    tokenizer.save_pretrained(out)
    return int(state["step"])


def checkpoint_tensors(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """The unsharded tensors whose names have this prefix, without the prefix, however many processes saved them."""
    reader = dcp.HuggingFaceStorageReader(str(path))
    saved = reader.read_metadata().state_dict_metadata
    tensors = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in saved.items()
        if name.startswith(prefix) and isinstance(entry, TensorStorageMetadata)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it loads in a single process, which is what is asked for
        dcp.load(tensors, storage_reader=reader, no_dist=True)
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def _chosen(run: Path, step: int | None) -> Path:
    complete = complete_checkpoints(run / "checkpoints")
    if not complete:
        raise ValueError(f"{run} has no complete checkpoint")
    if step is None:
        return complete[0]
    for path in complete:
        if path.name == f"step-{step:08d}":
            return path
    there = ", ".join(path.name for path in complete)
    raise ValueError(f"{run} has no complete checkpoint of step {step}; there are {there}")


def _tokenizer(recipe: Recipe, run: Path) -> PreTrainedTokenizerFast:
    end = load_tokenizer(Tokenizer("file", path=str(run / TOKENIZER), end=recipe.data.tokenizer.end)).end
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(run / TOKENIZER), eos_token=end, pad_token=end, clean_up_tokenization_spaces=False,
        model_max_length=recipe.data.context,
    )  # fmt: skip
    formats = {source.chat for source in recipe.data.sources if source.chat is not None}
    if formats:
        tokenizer.chat_template = FORMATS[sorted(formats)[0]].template()
    return tokenizer


def _stops(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """The end of a document, and of a turn in a chat."""
    ends = {tokenizer.eos_token_id}
    if tokenizer.chat_template:
        style = next(style for style in FORMATS.values() if style.template() == tokenizer.chat_template)
        ends.add(tokenizer.convert_tokens_to_ids(style.after.strip()))
    return sorted(ends)
