"""Text generation from any checkpoint directory, as used by `iha generate`."""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, TextStreamer

from iha.models.loading import load_strict


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. Temperature 0 is greedy."""

    max_new_tokens: int = 128
    temperature: float = 0.8
    top_p: float = 1.0
    top_k: int = 0
    num_beams: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.num_beams < 1 or self.top_k < 0:
            raise ValueError(f"max_new_tokens and num_beams must be at least 1, top_k at least 0: {self}")
        if not 0 <= self.temperature < math.inf or not 0 < self.top_p <= 1:
            raise ValueError(f"temperature must be at least 0 and finite, top_p in (0, 1]: {self}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be from 0 to 2^63 - 1, got {self.seed}")

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "num_beams": self.num_beams}
        if self.temperature == 0:
            return options | {"do_sample": False}
        return options | {"do_sample": True, "temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}


@dataclass(frozen=True)
class Generated:
    prompt: str
    text: str
    new_tokens: int


@dataclass(frozen=True)
class Run:
    """One batch."""

    generated: list[Generated]
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return sum(g.new_tokens for g in self.generated) / self.seconds


def load(directory: str, dtype: str = "auto", device: str = "cpu") -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer of a checkpoint directory of any architecture that `transformers` knows.

    Raises ValueError for any defect. A missing weight is an error here; it is not initialised at random.
    """
    _check_files(Path(directory))
    if dtype not in ("auto", "float32", "bfloat16", "float16"):
        raise ValueError(f"dtype must be auto, float32, bfloat16 or float16, got {dtype!r}")
    place = usable_device(device)
    with reading(f"the tokenizer of {directory}"):
        tokenizer = AutoTokenizer.from_pretrained(directory)
    with reading(f"the model in {directory}"):
        config = AutoConfig.from_pretrained(directory)
        _check_depth(directory, config)
        model: Any = load_strict(directory, config=config, dtype=dtype)
    model = model.to(place).eval()
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer of {directory} has {len(tokenizer)} tokens, the model only {model.config.vocab_size}"
        )
    return model, tokenizer


def read_prompts(path: Path) -> list[str]:
    """One prompt per line; in a .jsonl file the field "prompt" of each line."""
    lines = [(number, line) for number, line in enumerate(path.read_text().splitlines(), 1) if line.strip()]
    if not lines:
        raise ValueError(f"{path} holds no prompt")
    if path.suffix != ".jsonl":
        return [line for _, line in lines]
    return [_prompt(line, f"{path}, line {number}") for number, line in lines]


def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[str],
    sampling: Sampling,
    *,
    chat: bool | None = None,  # None: use the chat template if the tokenizer has one
    batch_size: int = 8,
    emit: Callable[[str], None] | None = None,  # receives text as it is generated, for a single prompt
) -> Iterator[Run]:
    """Generate for the prompts in left-padded batches; one `Run` per batch."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if chat and not tokenizer.chat_template:
        raise ValueError("this tokenizer has no chat template")
    chat = bool(tokenizer.chat_template) if chat is None else chat
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    tokenizer.padding_side = "left"
    ends = _ends(model, tokenizer)
    torch.manual_seed(sampling.seed)
    for start in range(0, len(prompts), batch_size):
        batch = prompts[start : start + batch_size]
        texts = [_as_chat(tokenizer, prompt) for prompt in batch] if chat else batch
        inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=not chat).to(model.device)
        if inputs["input_ids"].shape[1] == 0:
            raise ValueError(f"an empty prompt: {batch}")
        streamer = _Streamer(tokenizer, emit) if emit and len(prompts) == 1 and sampling.num_beams == 1 else None
        started = time.perf_counter()
        out = model.generate(  # type: ignore[operator]
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], streamer=streamer,
            pad_token_id=tokenizer.pad_token_id, eos_token_id=ends or None, **sampling.options(),
        )  # fmt: skip
        seconds = time.perf_counter() - started
        new = out[:, inputs["input_ids"].shape[1] :]
        yield Run([_generated(tokenizer, p, row, ends) for p, row in zip(batch, new, strict=True)], seconds)


def summary(runs: list[Run]) -> dict[str, Any]:
    """Texts and speed of all runs, for a record."""
    seconds = sum(run.seconds for run in runs)
    return {
        "seconds": seconds,
        "tokens_per_second": sum(g.new_tokens for r in runs for g in r.generated) / seconds,
        "generated": [asdict(g) for run in runs for g in run.generated],
    }


def _as_chat(tokenizer: PreTrainedTokenizerBase, prompt: str) -> str:
    messages = [{"role": "user", "content": prompt}]
    with reading("the chat template"):
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def _check_files(directory: Path) -> None:
    if not (directory / "config.json").is_file():
        raise ValueError(f"{directory} is no checkpoint directory: it has no config.json")
    if list(directory.glob("*.safetensors")):
        return
    if pickled := sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in directory.glob(pattern)):
        raise ValueError(
            f"{directory} has its weights in {pickled[0]}, a pickle, which can run code when it is loaded; only "
            "safetensors are read. If you trust it: AutoModelForCausalLM.from_pretrained(directory)"
            ".save_pretrained(new_directory) in transformers writes safetensors"
        )
    raise ValueError(f"{directory} has no weights (*.safetensors)")


def _check_depth(directory: str, config: Any) -> None:
    """Refuse more layers than tensors, before time is spent on building them: 100 000 layers take minutes."""
    from safetensors import safe_open

    layers, tensors = getattr(config, "num_hidden_layers", None), 0
    for path in Path(directory).glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            tensors += len(file.keys())
    if isinstance(layers, int) and not 1 <= layers <= tensors:
        raise ValueError(f"config.json asks for {layers} layers, the checkpoint has {tensors} tensors")


def usable_device(name: str) -> torch.device:
    """A device that tensors can be put on. ValueError says what is wrong with the name."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"no device {name!r} here: {str(error).splitlines()[0]}") from error
    if device.type == "meta":
        raise ValueError("no device 'meta' here: it holds no numbers")
    return device


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn any error of `transformers` while reading a file into a ValueError that names the file."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        raise ValueError(f"{what} cannot be used: {kind}{error}") from error


def _prompt(line: str, where: str) -> str:
    try:
        prompt = json.loads(line)["prompt"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f'{where} is no object with the field "prompt": {line[:80]}') from error
    if not isinstance(prompt, str):
        raise ValueError(f"{where}: the prompt is no text: {prompt!r}")
    return prompt


def _ends(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """End-of-text token ids: the model's, or else the tokenizer's."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    ends = tokenizer.eos_token_id if ends is None else ends
    return [] if ends is None else ends if isinstance(ends, list) else [ends]


def _generated(tokenizer: PreTrainedTokenizerBase, prompt: str, row: Tensor, ends: list[int]) -> Generated:
    ended = torch.isin(row, torch.tensor(ends, device=row.device)).nonzero().flatten()
    count = int(ended[0]) + 1 if len(ended) else len(row)
    return Generated(prompt, str(tokenizer.decode(row[:count], skip_special_tokens=True)), count)


class _Streamer(TextStreamer):
    def __init__(self, tokenizer: PreTrainedTokenizerBase, emit: Callable[[str], None]) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.emit = emit

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self.emit(text + ("\n" if stream_end else ""))
