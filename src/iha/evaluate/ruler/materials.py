"""What samples are made of: words, essays, documents with questions. Each is read once, when it is first needed.

Words come with the wonderwords package. Essays and documents are read from `--data DIR` (or DIR/ruler) under the names
of NVIDIA's files, or else from the Hugging Face Hub.
"""

import gzip
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
_DICTIONARY = ("english_words.json", "words_alpha.txt.gz", "wordlists/words_alpha.txt.gz")  # the first that is there
_SENTENCE_END = re.compile(r"[.!?][\"')\]\u2019\u201d]*$")


@dataclass(frozen=True)
class Reading:
    """One question about documents, which are indices into the pool."""

    question: str
    answers: list[str]
    gold: list[int]  # the answer is in these
    related: list[int]  # distractors that belong to this question


@dataclass(frozen=True)
class Library:
    documents: list[str]
    readings: list[Reading]


@dataclass(frozen=True)
class Essays:
    words: list[str]
    sentences: list[int]  # the word at which each sentence begins, the first at 0


class Materials:
    def __init__(self, data: Path | None = None) -> None:
        self.data = data

    @cached_property
    def keys(self) -> tuple[list[str], list[str]]:
        """Adjectives and nouns; a key is one of each, joined by a hyphen."""
        return _wonderwords("adjective"), _wonderwords("noun")

    @cached_property
    def words(self) -> list[str]:
        return sorted({*_wonderwords("noun"), *_wonderwords("adjective"), *_wonderwords("verb")})

    @cached_property
    def dictionary(self) -> list[str]:
        """For samples near 128k tokens, which need more words than wonderwords has."""
        path = self._find(*_DICTIONARY)
        if path is None:
            raise ValueError(
                f"this length needs more than the {len(self.words)} words of wonderwords: put words_alpha.txt.gz or "
                "NVIDIA's english_words.json into the --data directory"
            )
        if path.suffix == ".json":
            return sorted(set(json.loads(path.read_text(encoding="utf-8")).values()))
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return sorted(set(file.read().split()))

    @cached_property
    def essays(self) -> Essays:
        path = self._find("PaulGrahamEssays.json")
        if path is not None:
            text = json.loads(path.read_text(encoding="utf-8"))["text"]
        else:
            text = " ".join(row["text"] for row in _from_hub("baber/paul_graham_essays", None, "train", "essays"))
        words = text.split()
        if not words:
            raise ValueError(f"{path} holds no words")
        ends = (
            i + 1 for i, word in enumerate(words[:-1]) if _SENTENCE_END.search(word) and not words[i + 1][0].islower()
        )
        return Essays(words, [0, *ends])

    def library(self, name: str) -> Library:
        return self.squad if name == "squad" else self.hotpotqa

    @cached_property
    def squad(self) -> Library:
        path = self._find("squad.json")
        if path is not None:
            return _squad(json.loads(path.read_text(encoding="utf-8"))["data"])
        return _squad(_squad_articles(_from_hub("rajpurkar/squad_v2", None, "validation", "squad.json")))

    @cached_property
    def hotpotqa(self) -> Library:
        path = self._find("hotpotqa.json")
        if path is not None:
            return _hotpotqa(json.loads(path.read_text(encoding="utf-8")))
        rows = _from_hub("hotpotqa/hotpot_qa", "distractor", "validation", "hotpotqa.json")
        return _hotpotqa([_official_hotpot_row(row) for row in rows])

    def digests(self) -> dict[str, str]:
        """Hashes of the files' content; samples made from them are cached under these."""
        names = ("PaulGrahamEssays.json", "squad.json", "hotpotqa.json", *_DICTIONARY)
        paths = {name: self._find(name) for name in names}
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path} | {
            "wonderwords": hashlib.sha256(" ".join(self.words).encode()).hexdigest()
        }

    def _find(self, *names: str) -> Path | None:
        if self.data is None:
            return None
        places = [folder / name for name in names for folder in (self.data, self.data / "ruler")]
        return next((place for place in places if place.is_file()), None)


def _wonderwords(kind: str) -> list[str]:
    package = find_spec("wonderwords")  # not imported: it reads its lists in a deprecated way
    if package is None or not package.submodule_search_locations:
        raise ValueError("RULER's words come with the wonderwords package: pip install 'iha[eval]'")
    path = Path(package.submodule_search_locations[0]) / "assets" / f"{kind}list.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _from_hub(path: str, name: str | None, split: str, local: str) -> Any:
    import datasets

    try:
        return datasets.load_dataset(path, name, split=split)
    except (OSError, ValueError, ConnectionError) as error:
        raise ValueError(
            f"{path} cannot be had from the Hugging Face Hub; give a directory with {local} by --data DIR ({error})"
        ) from error


def _squad(articles: list[dict[str, Any]]) -> Library:
    documents = sorted({p["context"] for article in articles for p in article["paragraphs"]})
    place = {document: i for i, document in enumerate(documents)}
    readings = []
    for article in articles:
        article_documents = list(dict.fromkeys(place[p["context"]] for p in article["paragraphs"]))
        for paragraph in article["paragraphs"]:
            gold = place[paragraph["context"]]
            related = [i for i in article_documents if i != gold]
            for qa in paragraph["qas"]:
                if not qa["is_impossible"]:
                    readings.append(Reading(qa["question"], [a["text"] for a in qa["answers"]], [gold], related))
    return Library(documents, readings)


def _squad_articles(rows: Any) -> list[dict[str, Any]]:
    """The Hub's rows, one per question, as the articles of the original file."""
    articles: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        answers = [{"text": text} for text in row["answers"]["text"]]
        qa = {"question": row["question"], "answers": answers, "is_impossible": not answers}
        articles.setdefault(row["title"], {}).setdefault(row["context"], []).append(qa)
    return [{"paragraphs": [{"context": c, "qas": qas} for c, qas in a.items()]} for a in articles.values()]


def _official_hotpot_row(row: dict[str, Any]) -> dict[str, Any]:
    context = list(zip(row["context"]["title"], row["context"]["sentences"], strict=True))
    return {**row, "context": context, "supporting_facts": [[title] for title in row["supporting_facts"]["title"]]}


def _hotpotqa(rows: list[dict[str, Any]]) -> Library:
    """Questions whose supporting paragraphs are among their own: all of them in the official distractor setting."""
    documents = sorted({_hotpot_document(*paragraph) for row in rows for paragraph in row["context"]})
    place = {document: i for i, document in enumerate(documents)}
    readings = []
    for row in rows:
        own = {title: place[_hotpot_document(title, sentences)] for title, sentences in row["context"]}
        support = list(dict.fromkeys(fact[0] for fact in row["supporting_facts"]))
        if set(support) <= set(own):
            related = [i for title, i in own.items() if title not in support]
            readings.append(Reading(row["question"], [row["answer"]], [own[title] for title in support], related))
    return Library(documents, readings)


def _hotpot_document(title: str, sentences: list[str]) -> str:
    return f"{title}\n{''.join(sentences)}"
