"""Reading of words, essays and documents, in NVIDIA's files and in the Hub's rows."""

import json

import pytest
from material import bpe_tokenizer, write_materials
from published import DATA, needs_data

from iha.evaluate.protocol import Source
from iha.evaluate.ruler import materials
from iha.evaluate.ruler.materials import Materials
from iha.evaluate.ruler.settings import TASK_NAMES
from iha.evaluate.ruler.tasks import RulerTask


@pytest.fixture
def local(tmp_path):
    return Materials(write_materials(tmp_path))


def test_words_come_with_the_package():
    adjectives, nouns = Materials().keys
    assert len(adjectives) > 800
    assert len(nouns) > 6000
    assert len(set(Materials().words)) == len(Materials().words) > 8000


def test_sentences_begin_after_a_stop_and_not_in_lower_case(tmp_path):
    text = 'One two. Three "four." Five e.g. six? Seven'
    (tmp_path / "PaulGrahamEssays.json").write_text(json.dumps({"text": text}))
    essays = Materials(tmp_path).essays
    assert [essays.words[start] for start in essays.sentences] == ["One", "Three", "Five", "Seven"]


def test_squad(local):
    reading = local.squad.readings[0]
    assert len(local.squad.readings) == 30  # the impossible ones are left out
    assert reading.answers == ["Town 00", "in Town 00"]
    assert "Town 00" in local.squad.documents[reading.gold[0]]
    assert len(reading.related) == 5
    assert reading.gold[0] not in reading.related


def test_hotpotqa(local):
    reading = local.hotpotqa.readings[0]
    assert len(local.hotpotqa.readings) == 12  # the one whose support is absent is left out
    assert [local.hotpotqa.documents[i].split("\n")[0] for i in reading.gold] == ["Title 0 3", "Title 0 7"]
    assert len(reading.related) == 8


def test_the_hubs_rows_are_the_same(local, monkeypatch):
    """Rows as the Hub's datasets have them, made from the local files."""
    articles = json.loads((local.data / "squad.json").read_text())["data"]
    squad = []
    for a, article in enumerate(articles):
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                answers = {"text": [answer["text"] for answer in qa["answers"]]}
                row = {"title": str(a), "context": paragraph["context"], "question": qa["question"], "answers": answers}
                squad.append(row)
    hotpot = [
        {**row, "context": {"title": [t for t, _ in row["context"]], "sentences": [s for _, s in row["context"]]},
         "supporting_facts": {"title": [t for t, _ in row["supporting_facts"]], "sent_id": []}}
        for row in json.loads((local.data / "hotpotqa.json").read_text())
    ]  # fmt: skip
    essays = [{"text": json.loads((local.data / "PaulGrahamEssays.json").read_text())["text"]}]
    rows = {"rajpurkar/squad_v2": squad, "hotpotqa/hotpot_qa": hotpot, "baber/paul_graham_essays": essays}
    monkeypatch.setattr(materials, "_from_hub", lambda path, *_: rows[path])
    hub = Materials()
    assert hub.squad == local.squad
    assert hub.hotpotqa == local.hotpotqa
    assert hub.essays == local.essays


def test_what_is_missing_is_named(monkeypatch):
    def offline(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", offline)
    with pytest.raises(ValueError, match="words_alpha"):
        _ = Materials().dictionary
    with pytest.raises(ValueError, match=r"--data DIR \(no network\)"):
        _ = Materials().essays


def test_five_tasks_need_no_files():
    for setting in ("niah_single_1", "niah_multikey_2", "niah_multikey_3", "vt", "fwe"):
        assert RulerTask(setting, 4000).questions(Source(limit=1, tokenizer=bpe_tokenizer()))


@needs_data
@pytest.mark.parametrize("setting", TASK_NAMES)
def test_the_published_materials(setting):
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(DATA / "tokenizer" / "gpt-neox-20b.tokenizer.json"))
    for question in RulerTask(setting, 4096).questions(Source(DATA, limit=2, tokenizer=tokenizer)):
        total = question.meta["tokens"] + question.max_new_tokens
        assert 3600 < total <= 4096
        assert len(tokenizer(question.prompt + question.prefix)["input_ids"]) == question.meta["tokens"]
