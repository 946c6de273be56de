"""RULER as tasks of the evaluation: one for each setting and length."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from iha.evaluate.protocol import Decoding, Question, Source, Verdict
from iha.evaluate.ruler.counting import common_words_draft, frequent_words_draft
from iha.evaluate.ruler.lengths import Draft, TokenCounter, TooShortError, fit, smallest
from iha.evaluate.ruler.materials import Materials
from iha.evaluate.ruler.needles import needle_draft
from iha.evaluate.ruler.reading import reading_draft
from iha.evaluate.ruler.scoring import judge_all, judge_part
from iha.evaluate.ruler.settings import DEFAULT_SAMPLES, FAMILIES, NEEDLE_TASKS, READING_TASKS, TASK_NAMES
from iha.evaluate.ruler.tracking import tracking_draft
from iha.evaluate.shelf import remembered, tokenizer_digest

GENERATOR = 2  # increased whenever the same seed gives different samples
SHORTEST, LONGEST = 256, 131072


@dataclass(frozen=True)
class RulerTask:
    setting: str  # of settings.TASK_NAMES
    length: int  # tokens of prompt and answer together

    metrics = ("RULER", "lm-eval")  # NVIDIA's score, and what lm-eval would have said
    decoding = Decoding()
    runs_code = False

    def __post_init__(self) -> None:
        if self.setting not in TASK_NAMES:
            raise ValueError(f"RULER has no task {self.setting!r}: it has {', '.join(TASK_NAMES)}")
        if not SHORTEST <= self.length <= LONGEST:
            raise ValueError(f"RULER's length must be in [{SHORTEST}, {LONGEST}] tokens, got {self.length}")

    @property
    def name(self) -> str:
        return f"ruler_{self.setting}_{self.length}"

    def check(self) -> None:
        """Nothing is needed to judge."""

    def questions(self, source: Source) -> list[Question]:
        """The first samples of this seed. A sample does not depend on how many are asked for."""
        if source.cache is None:
            return self.generate(source)
        return remembered(source.cache, self.name, self._fingerprint(source), lambda: self.generate(source))

    def generate(self, source: Source) -> list[Question]:
        workshop = _workshop(source.data, source.tokenizer, source.chat)
        samples = min(source.limit or DEFAULT_SAMPLES, workshop.available(self.setting))
        questions = []
        for i in range(samples):
            draft = workshop.draft(self, source.seed, i)
            try:
                rendered, units, tokens = fit(draft, self.length - self.new_tokens, workshop.counter)
            except TooShortError:
                raise ValueError(
                    f"RULER's {self.setting} does not fit into {self.length} tokens with this tokenizer: {samples} "
                    f"samples take {workshop.shortest(self, source.seed, samples)} at least, answer included"
                ) from None
            meta = {"length": self.length, "tokens": tokens, "units": units, **rendered.meta}
            questions.append(
                Question(str(i), rendered.prompt, draft.answers, self.new_tokens, (), rendered.prefix, meta)
            )
        return questions

    @property
    def new_tokens(self) -> int:
        return FAMILIES[self.setting].new_tokens

    def judge(self, questions: Sequence[Question], samples: Sequence[Sequence[str]]) -> list[list[Verdict]]:
        judge = judge_part if self.setting in READING_TASKS else judge_all
        return [[judge(t, q.reference) for t in texts] for q, texts in zip(questions, samples, strict=True)]

    def score(self, verdicts: Sequence[Verdict]) -> dict[str, float]:
        (verdict,) = verdicts
        return {"RULER": verdict.score, "lm-eval": verdict.detail["lm_eval"]}

    def _fingerprint(self, source: Source) -> dict[str, Any]:
        return {
            "generator": GENERATOR,
            "seed": source.seed,
            "samples": source.limit or DEFAULT_SAMPLES,
            "chat": source.chat and source.tokenizer.chat_template,
            "tokenizer": tokenizer_digest(source.tokenizer),
            "materials": _workshop(source.data, source.tokenizer, source.chat).materials.digests(),
        }


@dataclass(frozen=True)
class Workshop:
    """What samples are written with; everything in it is read or counted once."""

    materials: Materials
    counter: TokenCounter

    def available(self, setting: str) -> int:
        """How many samples there can be."""
        if setting in READING_TASKS:
            return len(self.materials.library(READING_TASKS[setting]).readings)
        return sys.maxsize

    def shortest(self, task: RulerTask, seed: int, samples: int) -> int:
        """A length that holds all these samples. What a sample needs can depend on the length it is made for."""
        while True:
            tokens = [smallest(self.draft(task, seed, i), self.counter) for i in range(samples)]
            needed = max(tokens) + task.new_tokens
            if needed <= task.length:
                return task.length
            task = replace(task, length=needed)

    def draft(self, task: RulerTask, seed: int, index: int) -> Draft:
        rng = Random(f"{seed}/{task.setting}/{index}")  # the same needles at every length
        budget = task.length - task.new_tokens
        if task.setting in NEEDLE_TASKS:
            return needle_draft(task.setting, rng, self.materials, self.counter)
        if task.setting in READING_TASKS:
            library = self.materials.library(READING_TASKS[task.setting])
            return reading_draft(library.readings[index], library, rng, self.counter)
        if task.setting == "vt":
            return tracking_draft(rng, task.length, self.counter)
        if task.setting == "cwe":
            return common_words_draft(rng, task.length, budget, self.materials, self.counter)
        return frequent_words_draft(rng, budget, self.counter)


@lru_cache(maxsize=1)  # the tasks of one evaluation come one after the other
def _workshop(data: Path | None, tokenizer: Any, chat: bool) -> Workshop:
    return Workshop(Materials(data), TokenCounter(tokenizer, chat))
