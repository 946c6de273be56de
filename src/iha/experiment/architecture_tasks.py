"""Small real tasks for the other architectures, which need no download: masked text, dates, digits.

A task has one model shape per mechanism. The shapes differ in the attention layers and in the width of the
feed-forward, by which the comparison makes their FLOPs equal.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import date, timedelta
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from iha.models import (
    IHAEncoderConfig,
    IHAEncoderDecoderConfig,
    IHAForConditionalGeneration,
    IHAForImageClassification,
    IHAForMaskedLM,
    IHAVisionConfig,
)
from iha.train.sources import standard_library

Batch = dict[str, Tensor]
MECHANISMS = ("iha", "multihead")
PARTS = ("validation", "test")


class Task(ABC):
    name: str
    what: str  # for tables
    steps: int
    batch: int
    feed_forward: int  # width of IHA's; the twin's is made wider

    def model(self, mechanism: str, feed_forward: int) -> PreTrainedModel:
        if mechanism not in MECHANISMS:
            raise ValueError(f"mechanism must be one of {MECHANISMS}, got {mechanism!r}")
        attention = {"attention": "global"} if mechanism == "multihead" else {"attention": "iha", "num_pseudo_heads": 2}
        shape = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": feed_forward}
        return self.build(mechanism, {**shape, **attention, "window": 0, "global_every": None})

    @abstractmethod
    def build(self, mechanism: str, fields: dict[str, Any]) -> PreTrainedModel: ...

    @abstractmethod
    def batches(self, seed: int) -> Iterator[Batch]:
        """Training data, without end: arguments of the model."""

    @abstractmethod
    def held_out(self, part: str) -> Batch: ...

    def scores(self, model: PreTrainedModel, part: str) -> dict[str, float]:
        """Loss per target and accuracy on a held-out part."""
        batch = self.held_out(part)
        with torch.inference_mode():
            out = model(**batch)
        known = batch["labels"] != -100
        right = out.logits.argmax(dim=-1) == batch["labels"]
        return {"loss": float(out.loss), "accuracy": float(right[known].float().mean())}


class MaskedText(Task):
    """Bytes of Python's standard library; 15 % of them are masked."""

    name, what, steps, batch, feed_forward = "masked-text", "encoder, masked bytes", 400, 16, 128
    tokens, mask, rate = 64, 256, 0.15

    def build(self, mechanism: str, fields: dict[str, Any]) -> PreTrainedModel:
        return IHAForMaskedLM(
            IHAEncoderConfig(**fields, vocab_size=257, num_hidden_layers=3, max_position_embeddings=self.tokens)
        )

    @cached_property
    def text(self) -> dict[str, Tensor]:
        """Every tenth file is for validation, every tenth other one for the test."""
        parts: dict[str, list[bytes]] = {"train": [], "validation": [], "test": []}
        for index, path in enumerate(standard_library()):
            parts[{0: "validation", 5: "test"}.get(index % 10, "train")].append(path.read_bytes())
        return {part: torch.frombuffer(bytearray(b"".join(files)), dtype=torch.uint8) for part, files in parts.items()}

    def batches(self, seed: int) -> Iterator[Batch]:
        rng = torch.Generator().manual_seed(seed)
        while True:
            yield self._drawn("train", self.batch, rng)

    def held_out(self, part: str) -> Batch:
        return self._drawn(part, 512, torch.Generator().manual_seed(PARTS.index(part)))

    def _drawn(self, part: str, count: int, rng: torch.Generator) -> Batch:
        text = self.text[part]
        starts = torch.randint(len(text) - self.tokens, (count, 1), generator=rng)
        labels = text[starts + torch.arange(self.tokens)].long()
        masked = torch.rand(labels.shape, generator=rng) < self.rate
        return {"input_ids": labels.masked_fill(masked, self.mask), "labels": labels.masked_fill(~masked, -100)}


class Dates(Task):
    """`28 February 1987 + 12 days` to `1987-03-12`, letter by letter. Accuracy is that of whole answers."""

    name, what, steps, batch, feed_forward = "dates", "encoder–decoder, dates and days", 500, 32, 128
    pad, start, end = 0, 1, 2

    def build(self, mechanism: str, fields: dict[str, Any]) -> PreTrainedModel:
        return IHAForConditionalGeneration(
            IHAEncoderDecoderConfig(
                **fields,
                vocab_size=128,
                num_hidden_layers=2,
                max_position_embeddings=32,
                cross_attention=mechanism,
                pad_token_id=self.pad,
                decoder_start_token_id=self.start,
                eos_token_id=self.end,
            )
        )

    def batches(self, seed: int) -> Iterator[Batch]:
        rng = random.Random(f"train/{seed}")
        while True:
            yield self._drawn(self.batch, rng)

    def held_out(self, part: str) -> Batch:
        return self._drawn(1000, random.Random(part))

    def scores(self, model: PreTrainedModel, part: str) -> dict[str, float]:
        """Answers are generated greedily. The loss is that of their letters."""
        batch = self.held_out(part)
        with torch.inference_mode():
            loss = float(model(**batch).loss)
        wanted = batch.pop("labels")
        found = model.generate(**batch, max_new_tokens=wanted.shape[1], do_sample=False)[:, 1:]  # type: ignore[operator]
        found = F.pad(found, (0, wanted.shape[1] - found.shape[1]))
        return {"loss": loss, "accuracy": float((found == wanted).all(dim=1).float().mean())}

    def _drawn(self, count: int, rng: random.Random) -> Batch:
        questions, answers = zip(*(question(rng) for _ in range(count)), strict=True)
        inputs = self._letters(questions)
        labels = self._letters(answers)
        labels = F.pad(labels, (0, 1), value=self.end)
        return {"input_ids": inputs, "attention_mask": (inputs != self.pad).long(), "labels": labels}

    def _letters(self, texts: tuple[str, ...]) -> Tensor:
        width = max(map(len, texts))
        return torch.tensor([[*text.encode("ascii"), *[self.pad] * (width - len(text))] for text in texts])


def question(rng: random.Random) -> tuple[str, str]:
    """A date between 1900 and 2099 and a number of days, and the date so many days later."""
    day, days = date(1900, 1, 1) + timedelta(rng.randrange(73_000)), rng.randrange(1, 31)
    return f"{day.day} {day:%B} {day.year} + {days} days", (day + timedelta(days)).isoformat()


class Digits(Task):
    """The 1797 handwritten digits of scikit-learn, 8 × 8 pixels."""

    name, what, steps, batch, feed_forward = "digits", "vision, handwritten digits", 300, 64, 128

    def build(self, mechanism: str, fields: dict[str, Any]) -> PreTrainedModel:
        fields = {**fields, "num_hidden_layers": 3, "num_labels": 10}
        return IHAForImageClassification(IHAVisionConfig(**fields, image_size=8, patch_size=2, num_channels=1))

    @cached_property
    def images(self) -> dict[str, Batch]:
        """1097 for training, 200 for validation and 500 for the test, in an order that is always the same."""
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise ValueError("the digits need scikit-learn: pip install scikit-learn") from error
        pixels, labels = load_digits(return_X_y=True)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        x = torch.tensor(pixels, dtype=torch.float).view(-1, 1, 8, 8)[order] / 8 - 1  # from 0 … 16 to -1 … 1
        y = torch.tensor(labels)[order]
        cuts = {"train": slice(0, 1097), "validation": slice(1097, 1297), "test": slice(1297, 1797)}
        return {part: {"pixel_values": x[cut], "labels": y[cut]} for part, cut in cuts.items()}

    def batches(self, seed: int) -> Iterator[Batch]:
        rng, train = torch.Generator().manual_seed(seed), self.images["train"]
        while True:
            for chosen in torch.randperm(len(train["labels"]), generator=rng).split(self.batch):
                yield {name: tensor[chosen] for name, tensor in train.items()}

    def held_out(self, part: str) -> Batch:
        return dict(self.images[part])


TASKS: dict[str, Task] = {task.name: task for task in (MaskedText(), Dates(), Digits())}
