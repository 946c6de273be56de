"""Documents to token shards: in parallel, shard by shard, so that an interrupted preparation can resume."""

import hashlib
import json
import math
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

import numpy as np

from iha.records import Progress, output_directory, read_json, silent, work_in, write_json, write_text
from iha.train.chat import FORMATS
from iha.train.order import derived_key
from iha.train.recipe import Data, Recipe, Source
from iha.train.segments import Segments
from iha.train.shards import is_complete, write_shard
from iha.train.sources import Part, parts, read
from iha.train.tokenise import Encoded, TextTokenizer, load_tokenizer, train_tokenizer

TOKENIZER = "tokenizer.json"
DATA = "data"  # of the run directory: shards, unless the recipe has a directory for them
# Parts that one process reads as bytes in the time that it takes to start another.
_QUICK_PARTS, _QUICK_KINDS = 8, ("stdlib", "text", "jsonl")


def data_directory(recipe: Recipe, directory: Path) -> Path:
    return Path(recipe.data.directory) if recipe.data.directory else directory / DATA


def lacks_tokenizer(data: Data, directory: Path) -> bool:
    """Whether a tokenizer must be trained before anything else."""
    return data.tokenizer.kind == "train" and not (directory / TOKENIZER).is_file()


def prepare(
    data: Data,
    directory: Path,
    *,
    seed: int,
    workers: int = 1,
    trained: Callable[[], str | None] = lambda: None,
    progress: Progress = silent,
) -> TextTokenizer:
    """Every source of the recipe as shards in `directory`, and its tokenizer. Does only what is not there yet.

    `trained` may have the tokenizer already (`iha.train.ahead`).
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    pieces_of = check_sources(data)
    with work_in(directory, is_worth_keeping=lambda: has_shards(directory)):
        tokenizer = _tokenizer(data, directory, seed, trained)
        todo: list[tuple[Source, Path, int, Part]] = []
        for source in data.sources:
            if source.chat is not None:
                tokenizer.require(FORMATS[source.chat].tokens, f"source {source.name}: chat format {source.chat!r}")
            place = output_directory(directory / source.name)
            pieces = pieces_of[source.name]
            _describe(source, pieces, place, tokenizer, data, seed)
            todo += [(source, place, index, part) for index, part in enumerate(pieces) if not is_complete(place, index)]
        _run(todo, data, directory, seed, _useful_workers(todo, tokenizer, workers), progress)
    return tokenizer


def check_sources(data: Data) -> dict[str, list[Part]]:
    """The parts of every source, by name. A source that has none is refused, before anything is written."""
    found = {source.name: parts(source) for source in data.sources}
    for name, pieces in found.items():
        if not pieces:
            raise ValueError(f"source {name} has no documents")
    return found


def has_shards(directory: Path) -> bool:
    """Whether any shard is complete: then a preparation that failed can be resumed."""
    return any(is_complete(place.parent, int(place.stem)) for place in directory.glob("*/[0-9]*[0-9].json"))


def _useful_workers(todo: list[tuple[Source, Path, int, Part]], tokenizer: TextTokenizer, workers: int) -> int:
    """No more processes than there is work for: bytes of a few files are written before a second one has started."""
    quick = sum(tokenizer.is_bytes and source.kind in _QUICK_KINDS for source, *_ in todo)
    return min(workers, len(todo) - quick + math.ceil(quick / _QUICK_PARTS))


def _run(
    todo: list[tuple[Source, Path, int, Part]], data: Data, directory: Path, seed: int, workers: int, progress: Progress
) -> None:
    if not todo:
        return
    with progress.task("tokenising", total=len(todo)) as task:
        if workers <= 1 or len(todo) == 1:
            for job in todo:
                _prepare_part(*job, data, directory, seed)
                task.advance(1, note=job[0].name)
            return
        spawn = multiprocessing.get_context("spawn")  # tokenizers and torch have threads, which do not survive a fork
        with ProcessPoolExecutor(min(workers, len(todo)), mp_context=spawn) as pool:
            futures = {pool.submit(_prepare_part, *job, data, directory, seed): job[0].name for job in todo}
            try:
                for future in as_completed(futures):
                    future.result()
                    task.advance(1, note=futures[future])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _prepare_part(source: Source, place: Path, index: int, part: Part, data: Data, directory: Path, seed: int) -> None:
    tokenizer = load_tokenizer(data.tokenizer, directory / TOKENIZER)

    def documents() -> Iterator[tuple[str, Encoded]]:
        for number, document in enumerate(tokenizer.encode_all(read(source, part, seed))):
            held_out = derived_key(seed, index, number) / 2**64 < data.validation
            yield "validation" if held_out else "train", document

    write_shard(place, index, documents(), token_dtype(tokenizer))


def token_dtype(tokenizer: TextTokenizer) -> str:
    return "uint16" if tokenizer.size <= np.iinfo(np.uint16).max + 1 else "uint32"


def _tokenizer(data: Data, directory: Path, seed: int, trained: Callable[[], str | None]) -> TextTokenizer:
    path = directory / TOKENIZER
    if lacks_tokenizer(data, directory):
        write_text(path, trained() or train_tokenizer(sample(data.sources, seed), data.tokenizer.vocab_size))
    return load_tokenizer(data.tokenizer, path)


def sample(sources: list[Source], seed: int) -> Iterator[Segments]:
    """Documents of all sources, by weight: the characters of each in the shares of the mixture.

    In turn, document by document, a source of long documents would leave the others no words of their own.
    """
    streams = {source.name: _documents(source, seed) for source in sources}
    weights = {source.name: source.weight for source in sources}
    read_so_far = dict.fromkeys(streams, 0.0)  # characters / weight
    while streams:
        name = min(streams, key=lambda name: read_so_far[name])
        document = next(streams[name], None)
        if document is None:
            del streams[name]
            continue
        read_so_far[name] += sum(len(segment.text) for segment in document) / weights[name]
        yield document


def _documents(source: Source, seed: int) -> Iterator[Segments]:
    for part in parts(source):
        yield from read(source, part, seed)


def _describe(source: Source, pieces: list[Part], place: Path, tokenizer: TextTokenizer, data: Data, seed: int) -> None:
    """What a directory was prepared from; another recipe's shards are refused, not mixed in."""
    settings = {**asdict(source), "weight": None, "tokenizer": tokenizer.fingerprint, "validation": data.validation}
    files = [(path, Path(path).stat().st_size) for part in pieces for path in part.paths]
    identity = json.dumps([settings, seed, len(pieces), files], sort_keys=True)
    description = {
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
        "shards": len(pieces),
        "dtype": token_dtype(tokenizer),
    }
    path = place / "source.json"
    if path.is_file() and read_json(path) != description:
        raise ValueError(
            f"{place} was prepared from other files, another tokenizer, seed or validation share: "
            "remove it or choose another data.directory"
        )
    write_json(path, description)
