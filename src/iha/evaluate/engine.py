"""A Hugging Face causal LM answers questions: in batches of similar length, one prefill per prompt for all its samples.

`num_return_sequences` of `transformers` copies the prompt before the prefill, so 16 samples cost 16 prefills. Here the
prompts of a batch are prefilled once, their KV cache is copied for the samples, and `generate` continues from it.
"""

import hashlib
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import transformers
from torch import Tensor
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
)

from iha.evaluate.prompts import prompt_tokens
from iha.evaluate.protocol import Decoding, Question
from iha.models import load_strict
from iha.models.generation import reading, usable_device


def load(name: str, dtype: str = "auto", device: str = "cpu") -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal LM and its tokenizer, from a directory or the Hub. Code in a checkpoint is never run."""
    if dtype not in ("auto", "float32", "bfloat16", "float16"):
        raise ValueError(f"dtype must be auto, float32, bfloat16 or float16, got {dtype!r}")
    place = usable_device(device)
    transformers.utils.logging.disable_progress_bar()  # of the weights; progress is the caller's
    with reading(f"the tokenizer of {name}"):
        tokenizer = AutoTokenizer.from_pretrained(name)
    with reading(f"the model {name}"):
        model: Any = load_strict(name, dtype=dtype)
    return model.to(place).eval(), tokenizer


class Engine(Protocol):
    """Whatever answers questions: a model, or a stand-in that knows the answers."""

    tokenizer: Any
    chat: bool

    def identity(self) -> dict[str, Any]:
        """What must be unchanged for an evaluation to resume after an interruption."""

    def batches(self, questions: Sequence[Question], decoding: Decoding) -> list[list[int]]:
        """Indices of the questions that are answered together, the longest first."""

    def clipped(self, questions: Sequence[Question]) -> int:
        """How many questions get fewer than `max_new_tokens`, because the model's context ends first."""

    def answer(self, questions: Sequence[Question], decoding: Decoding, seed: str) -> list[list[str]]:
        """`decoding.samples` texts for each question of one batch: a function of its arguments alone."""


class HuggingFaceEngine:
    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int = 8,
        chat: bool = False,
        max_length: int | None = None,  # tokens of prompt and answer; by default what the model's config says
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if max_length is not None and max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {max_length}")
        if chat and not tokenizer.chat_template:
            raise ValueError("this tokenizer has no chat template")
        if len(tokenizer) > model.config.vocab_size:
            raise ValueError(f"the tokenizer has {len(tokenizer)} tokens, the model only {model.config.vocab_size}")
        self.model, self.tokenizer, self.chat, self.batch_size = model.eval(), tokenizer, chat, batch_size
        self.max_length = max_length or getattr(model.config, "max_position_embeddings", None)
        self.ends = _ends(model, tokenizer)
        pad = tokenizer.pad_token_id
        self.pad = int(pad) if pad is not None else (self.ends or [0])[0]
        self._forward = set(inspect.signature(model.forward).parameters)

    def identity(self) -> dict[str, Any]:
        """A hash over part of every weight tensor: enough to distinguish two checkpoints of one run."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            part = tensor.detach().flatten()[:256].float().cpu()
            digest.update(f"{name}{tuple(tensor.shape)}{part.tolist()}".encode())
        return {
            "weights": digest.hexdigest()[:20],
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "batch_size": self.batch_size,
            "chat": self.chat,
        }

    def batches(self, questions: Sequence[Question], decoding: Decoding) -> list[list[int]]:
        lengths = [len(self._tokens(question)) for question in questions]
        for question, length in zip(questions, lengths, strict=True):
            if length == 0:
                raise ValueError(f"question {question.id} has an empty prompt")
            if self.max_length is not None and length >= self.max_length:
                raise ValueError(
                    f"the prompt of question {question.id} has {length} tokens, the model takes {self.max_length} with "
                    "the answer, and prompts are never cut"
                )
        order = sorted(range(len(questions)), key=lambda i: (-lengths[i], i))
        size = max(1, self.batch_size // decoding.samples)
        return [order[start : start + size] for start in range(0, len(order), size)]

    def clipped(self, questions: Sequence[Question]) -> int:
        return sum(
            self._budget(question, len(self._tokens(question))) < question.max_new_tokens for question in questions
        )

    def _tokens(self, question: Question) -> list[int]:
        return prompt_tokens(self.tokenizer, question.prompt, question.prefix, self.chat)

    def _budget(self, question: Question, prompt_length: int) -> int:
        """Tokens that may be generated."""
        room = question.max_new_tokens if self.max_length is None else self.max_length - prompt_length
        return min(question.max_new_tokens, room)

    @torch.inference_mode()
    def answer(self, questions: Sequence[Question], decoding: Decoding, seed: str) -> list[list[str]]:
        rows = [self._tokens(question) for question in questions]
        budgets = [self._budget(question, len(row)) for question, row in zip(questions, rows, strict=True)]
        N, S = max(map(len, rows)), decoding.samples
        device = self.model.device
        ids = torch.tensor([[self.pad] * (N - len(row)) + row for row in rows], device=device)  # (B, N), left-padded
        mask = torch.tensor([[0] * (N - len(row)) + [1] * len(row) for row in rows], device=device)
        continued: dict[str, Any] = {}
        if S > 1 and N > 1:
            continued["past_key_values"] = self._read_once(ids, mask, S)
        ids, mask = ids.repeat_interleave(S, dim=0), mask.repeat_interleave(S, dim=0)  # (B*S, N)
        stop = _StopStrings(self.tokenizer, [q.stop for q in questions for _ in range(S)], N)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), self._own_settings(decoding):
            torch.manual_seed(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:7], "big"))
            out = self.model.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=max(budgets), stopping_criteria=[stop], **continued
            )
        new = out[:, N:].tolist()
        texts = [self._text(new[i * S + s][: budgets[i]], q) for i, q in enumerate(questions) for s in range(S)]
        return [texts[i * S : (i + 1) * S] for i in range(len(questions))]

    def _read_once(self, ids: Tensor, mask: Tensor, samples: int) -> Any:
        """The KV cache of each prompt without its last token, repeated for every sample."""
        ids, mask = ids[:, :-1], mask[:, :-1]
        options: dict[str, Any] = {"attention_mask": mask, "use_cache": True}
        if "position_ids" in self._forward:
            options["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
        if "logits_to_keep" in self._forward:
            options["logits_to_keep"] = 1
        cache = self.model(input_ids=ids, **options).past_key_values
        cache.batch_repeat_interleave(samples)
        return cache

    def _text(self, tokens: list[int], question: Question) -> str:
        end = next((i for i, token in enumerate(tokens) if token in self.ends), len(tokens))
        text = str(self.tokenizer.decode(tokens[:end], skip_special_tokens=True))
        return cut_at(text, question.stop)

    @contextmanager
    def _own_settings(self, decoding: Decoding) -> Iterator[None]:
        """The protocol's decoding settings. The checkpoint's own (penalties, top-k, ...) are ignored."""
        settings = GenerationConfig(pad_token_id=self.pad, eos_token_id=self.ends or None)
        settings.do_sample = decoding.temperature > 0
        if settings.do_sample:
            settings.temperature, settings.top_p, settings.top_k = decoding.temperature, decoding.top_p, decoding.top_k
        recommended, self.model.generation_config = self.model.generation_config, settings
        try:
            yield
        finally:
            self.model.generation_config = recommended


def cut_at(text: str, stop: Sequence[str]) -> str:
    """Up to the first stop string."""
    return text[: min((i for i in (text.find(s) for s in stop) if i >= 0), default=len(text))]


class _StopStrings(StoppingCriteria):
    """A row ends when its new text contains one of its stop strings. Only the tail that can matter is decoded."""

    def __init__(self, tokenizer: Any, stops: list[tuple[str, ...]], prompt_length: int) -> None:
        self.tokenizer, self.stops, self.prompt_length = tokenizer, stops, prompt_length
        self.done = [False] * len(stops)
        # A token has at least one byte. The tail may begin inside a character, hence a few tokens more.
        self.tail = max((len(s.encode()) for stop in stops for s in stop), default=0) + 4

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        start = max(self.prompt_length, input_ids.shape[1] - self.tail)
        waiting = [i for i, done in enumerate(self.done) if not done and self.stops[i]]
        if waiting:
            texts = self.tokenizer.batch_decode(input_ids[waiting, start:].tolist(), skip_special_tokens=True)
            for i, text in zip(waiting, texts, strict=True):
                self.done[i] = any(s in text for s in self.stops[i])
        return torch.tensor(self.done, device=input_ids.device)


def _ends(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that end a text: the model's and the tokenizer's."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    ends = [] if ends is None else list(ends) if isinstance(ends, list) else [ends]
    return list(dict.fromkeys([*ends, *([] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id])]))
