"""Text in, text out: what `iha generate` does with any checkpoint directory."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, TextStreamer


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
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ValueError(f"temperature must be at least 0 and top_p in (0, 1]: {self}")

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
    """Model and tokenizer of a checkpoint directory of any architecture that `transformers` knows."""
    if not (Path(directory) / "config.json").is_file():
        raise ValueError(f"{directory} is no checkpoint directory: it has no config.json")
    if dtype not in ("auto", "float32", "bfloat16", "float16"):
        raise ValueError(f"dtype must be auto, float32, bfloat16 or float16, got {dtype!r}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{directory} has no tokenizer that can be read: {error}") from error
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
    model = model.to(torch.device(device)).eval()
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer of {directory} has {len(tokenizer)} tokens, the model only {model.config.vocab_size}"
        )
    return model, tokenizer


def read_prompts(path: Path) -> list[str]:
    """One prompt a line; in a .jsonl file the field "prompt" of each line."""
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    prompts = [json.loads(line)["prompt"] for line in lines] if path.suffix == ".jsonl" else lines
    if not prompts:
        raise ValueError(f"{path} holds no prompt")
    return prompts


def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[str],
    sampling: Sampling,
    *,
    chat: bool | None = None,  # None: if the tokenizer has a chat template
    batch_size: int = 8,
    emit: Callable[[str], None] | None = None,  # receives text as it is made, for a single prompt
) -> Iterator[Run]:
    """The prompts in batches, left-padded."""
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


def as_json(directory: str, sampling: Sampling, runs: list[Run]) -> dict[str, Any]:
    return {
        "model": Path(directory).name,
        "sampling": asdict(sampling),
        "seconds": sum(run.seconds for run in runs),
        "tokens_per_second": sum(g.new_tokens for r in runs for g in r.generated) / sum(r.seconds for r in runs),
        "generated": [asdict(g) for run in runs for g in run.generated],
    }


def _as_chat(tokenizer: PreTrainedTokenizerBase, prompt: str) -> str:
    messages = [{"role": "user", "content": prompt}]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def _ends(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that end a text: the model's, or else the tokenizer's."""
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
