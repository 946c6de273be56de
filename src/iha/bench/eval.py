"""What evaluating costs beyond generating: the harness over bare `generate`, 16 samples, RULER's samples, the jail.

For a ratio, both sides alternate in one process. The model is small on purpose: then the harness's overhead is visible.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from iha.bench.measure import Times, Watch, take_turns
from iha.evaluate.engine import HuggingFaceEngine
from iha.evaluate.jail import JailUnavailableError, Limits, Program, check_jail, run_program
from iha.evaluate.prompts import prompt_tokens
from iha.evaluate.protocol import Decoding, Question, Source, Verdict
from iha.evaluate.ruler.settings import TASK_NAMES
from iha.evaluate.ruler.tasks import RulerTask
from iha.evaluate.run import evaluate
from iha.models import IHAForCausalLM
from iha.models.presets import preset
from iha.records import Progress, Record, silent, write_record


@dataclass(frozen=True)
class Settings:
    """What `iha bench eval` measures."""

    preset: str = "10m"
    questions: int = 16
    prompt_tokens: int = 512
    new_tokens: int = 32
    samples: int = 16
    batch_size: int = 16
    rounds: int = 6
    lengths: tuple[int, ...] = (4096, 131072)  # of RULER's samples
    tokenizer: str | None = None  # a directory or a tokenizer.json; one token per byte when not given
    data: str | None = None  # essays and documents for RULER; without them, only tasks that need neither are measured
    programs: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.questions, self.new_tokens, self.rounds, self.programs, self.batch_size) < 1:
            raise ValueError(f"questions, new_tokens, rounds, programs and batch_size must be at least 1: {self}")
        if self.samples < 2 or self.prompt_tokens < 16:
            raise ValueError(f"samples must be at least 2 and prompt_tokens at least 16: {self}")


def run(settings: Settings, path: Path, command: str, progress: Progress = silent) -> Record:
    """Each part is in the record as soon as it is measured."""
    _tokenizer(settings.tokenizer)  # a bad one is refused here and not after minutes of measuring
    watch = Watch()
    record = Record.new("eval-bench", command=command, config=asdict(settings), seed=settings.seed)
    parts: dict[str, Callable[[Settings], Any]] = {
        "harness": measure_harness, "samples": measure_samples, "ruler": measure_ruler, "jail": measure_jail,
    }  # fmt: skip
    results: dict[str, Any] = {}
    with progress.task("bench eval", total=len(parts)) as task:
        for name, measure in parts.items():
            task.advance(0, note=name)
            results[name] = measure(settings)
            quiet = watch.judge(results[part]["spread"] for part in ("harness", "samples") if part in results)
            record = record.finished({**results, "quiet": quiet.as_json()})
            write_record(path, record)
            task.advance(1)
    return record


def measure_harness(settings: Settings) -> dict[str, Any]:
    """A whole evaluation (tokenising, batches, stop strings, judging, files) beside `generate` on the same batches."""
    engine, task = _engine(settings), _Letters(settings, Decoding())
    asked = task.questions(Source())
    batches = [
        [prompt_tokens(engine.tokenizer, asked[i].prompt) for i in b] for b in engine.batches(asked, task.decoding)
    ]

    def bare() -> None:
        for rows in batches:
            ids = torch.tensor(rows)
            _generate(engine, ids, settings.new_tokens)

    def harness() -> None:
        with tempfile.TemporaryDirectory() as folder:
            evaluate(engine, [task], Path(folder), model="bench", source=Source(), command="")

    return _compared(take_turns({"harness": harness, "bare": bare}, settings.rounds), "harness", "bare")


def measure_samples(settings: Settings) -> dict[str, Any]:
    """All samples of one question: the prompt read once, beside `num_return_sequences`, which reads it for each."""
    engine = _engine(settings)
    decoding = Decoding(samples=settings.samples, temperature=0.6)
    question = _Letters(settings, decoding).questions(Source())[0]
    ids = torch.tensor([prompt_tokens(engine.tokenizer, question.prompt)])
    sides = {
        "shared": lambda: engine.answer([question], decoding, "bench"),
        "separate": lambda: _generate(
            engine, ids, settings.new_tokens, do_sample=True, temperature=0.6, num_return_sequences=settings.samples
        ),
    }
    return _compared(take_turns(sides, settings.rounds), "shared", "separate")


def measure_ruler(settings: Settings) -> list[dict[str, Any]]:
    """Seconds per sample. A task's first sample also reads and tokenises its material, so it is reported separately."""
    tokenizer = _tokenizer(settings.tokenizer)
    data = None if settings.data is None else Path(settings.data)
    needs_none = ("niah_single_1", "niah_multikey_2", "niah_multikey_3", "vt", "fwe")
    rows = []
    for length in settings.lengths:
        for name in TASK_NAMES if data is not None else needs_none:
            task, seconds = RulerTask(name, length), []
            for seed in range(4):
                started = time.perf_counter()
                (sample,) = task.questions(Source(data, limit=1, seed=seed, tokenizer=tokenizer))
                seconds.append(time.perf_counter() - started)
            tokens = sample.meta["tokens"] + sample.max_new_tokens
            rows.append(
                {"task": name, "length": length, "tokens": tokens, "first": seconds[0], "next": min(seconds[1:])}
            )
    return rows


def measure_jail(settings: Settings) -> dict[str, Any]:
    """Seconds per empty program, run one after the other; or the reason why there is no jail."""
    try:
        check_jail()
    except JailUnavailableError as error:
        return {"unavailable": str(error)}
    program, seconds = Program("def f(): pass", ("f()",), ("f",)), []
    for _ in range(settings.programs):
        started = time.perf_counter()
        outcome = run_program(program, Limits())
        if not outcome.passed:
            raise RuntimeError(f"the empty program failed in the jail: {outcome}")
        seconds.append(time.perf_counter() - started)
    return {"best": min(seconds), "median": sorted(seconds)[len(seconds) // 2], "programs": len(seconds)}


class _Letters:
    """Random letters as prompts, answers not judged, and a stop string that never occurs."""

    name, metrics, runs_code = "letters", ("length",), False

    def __init__(self, settings: Settings, decoding: Decoding) -> None:
        self.settings, self.decoding = settings, decoding

    def check(self) -> None:
        """Nothing is needed."""

    def questions(self, source: Source) -> list[Question]:
        s = self.settings
        letters = torch.randint(
            97, 123, (s.questions, s.prompt_tokens), generator=torch.Generator().manual_seed(s.seed)
        )
        texts = [bytes(row.tolist()).decode() for row in letters]
        return [Question(str(i), text, "", s.new_tokens, ("never comes",)) for i, text in enumerate(texts)]

    def judge(self, questions: Sequence[Question], samples: Sequence[Sequence[str]]) -> list[list[Verdict]]:
        return [[Verdict(float(bool(text))) for text in texts] for texts in samples]

    def score(self, verdicts: Sequence[Verdict]) -> dict[str, float]:
        return {"length": verdicts[0].score}


def _engine(settings: Settings) -> HuggingFaceEngine:
    torch.manual_seed(settings.seed)
    room = settings.prompt_tokens + settings.new_tokens
    config = preset(settings.preset, max_position_embeddings=room, eos_token_id=None, vocab_size=256)
    engine = HuggingFaceEngine(IHAForCausalLM(config), _tokenizer(None), batch_size=settings.batch_size)
    engine.ends = []  # every text has the same number of tokens
    return engine


@torch.inference_mode()
def _generate(engine: HuggingFaceEngine, ids: torch.Tensor, new_tokens: int, **options: Any) -> None:
    """`generate` with nothing around it."""
    options = {"do_sample": False, **options}
    engine.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new_tokens,
        pad_token_id=0,
        eos_token_id=None,
        **options,
    )


def _tokenizer(name: str | None) -> PreTrainedTokenizerBase:
    if name is not None and Path(name).is_file():
        return PreTrainedTokenizerFast(tokenizer_file=name)
    if name is not None:
        return PreTrainedTokenizerFast.from_pretrained(name)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def _compared(times: Times, side: str, against: str) -> dict[str, Any]:
    return {
        "seconds": {name: times.best(name) for name in (side, against)},
        "ratio": times.ratio(side, against),
        "ratios": times.ratios(side, against),
        "spread": times.spread(side, against),
    }
