"""Lengths, needles and questions of every task, for three kinds of tokenizer."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from material import bpe_tokenizer, byte_tokenizer, unigram_tokenizer, write_materials

from iha.evaluate.prompts import prompt_tokens
from iha.evaluate.protocol import Source
from iha.evaluate.ruler.lengths import Draft, Rendered, RunningSum, TokenCounter, fit
from iha.evaluate.ruler.settings import FAMILIES, TASK_NAMES
from iha.evaluate.ruler.tasks import RulerTask

TOKENIZERS = {
    "bytes": cache(byte_tokenizer),
    "bytes with <s>": cache(lambda: byte_tokenizer(bos=True)),
    "bpe": cache(bpe_tokenizer),
    "unigram": cache(unigram_tokenizer),
}


@pytest.fixture(scope="session")
def materials(tmp_path_factory):
    return write_materials(tmp_path_factory.mktemp("ruler"))


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("setting", TASK_NAMES)
def test_a_sample_is_full_and_never_longer_than_asked(setting, kind, materials):
    tokenizer = TOKENIZERS[kind]()

    # From 4096 tokens on the list of common words has 300 entries at least: with these tokenizers up to 7,067 tokens.
    lengths = st.integers(8000, 9000) if setting == "cwe" else st.integers(3500, 5500)

    @settings(max_examples=1 if kind == "unigram" else 3, deadline=None)
    @given(length=lengths, seed=st.integers(0, 10**6))
    def check(length, seed):
        task = RulerTask(setting, length)
        (question,) = task.questions(Source(materials, limit=1, seed=seed, tokenizer=tokenizer))
        tokens = len(prompt_tokens(tokenizer, question.prompt, question.prefix))
        assert question.meta["tokens"] == tokens
        assert tokens + question.max_new_tokens <= length
        # Full: with the units that one more sample of this kind takes on average there would be no room for another.
        per_unit = {"cwe": 6 if length < 4096 else 30, "fwe": 8}.get(setting, 1)
        longest = {"qa": 400, "niah_multikey_2": 110, "niah_multikey_3": 130, "vt": 100, "niah_single_1": 100}
        room = next((v for k, v in longest.items() if setting.startswith(k)), 25 * per_unit)
        assert length - question.max_new_tokens - tokens < room

    check()


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("setting", TASK_NAMES)
def test_one_unit_more_would_not_fit(setting, kind, materials):
    """By tokenising the longer prompt, which the generator does not do; its sums may be off by a token or two."""
    from iha.evaluate.ruler.tasks import Materials, Workshop

    tokenizer = TOKENIZERS[kind]()
    workshop = Workshop(Materials(materials), TokenCounter(tokenizer))
    for seed in range(2):
        task = RulerTask(setting, 8000 if setting == "cwe" else 5000)
        draft = workshop.draft(task, seed, 0)
        budget = task.length - task.new_tokens
        _, units, tokens = fit(draft, budget, workshop.counter)
        more = draft.render(units + 1)
        slack = {"unigram": 12}.get(kind, 0 if setting not in ("cwe", "qa_1", "qa_2") else 2)
        assert tokens <= budget < workshop.counter.prompt(more.prompt, more.prefix) + slack + 1


@pytest.mark.parametrize("setting", TASK_NAMES)
def test_needles_and_questions_are_whole(setting, materials):
    tokenizer = byte_tokenizer()
    family = FAMILIES[setting]
    for question in RulerTask(setting, 8000).questions(Source(materials, limit=3, seed=5, tokenizer=tokenizer)):
        for needle in question.meta.get("needles", []):
            assert question.prompt.count(needle) == 1, needle
        if setting != "qa_2":  # its answer may be a yes
            for answer in question.reference if not setting.startswith("qa") else question.reference[:1]:
                assert answer in question.prompt
        ending = family.template.rsplit("}", 1)[-1] or question.prompt[-20:]
        assert question.prompt.endswith(ending)
        assert question.prefix.startswith(family.prefix[:10])
        assert all(0 <= depth <= 1 for depth in question.meta.get("depths", []))


def test_needles_are_everywhere(materials):
    source = Source(materials, limit=60, tokenizer=byte_tokenizer())
    for setting in ("niah_single_1", "niah_single_2", "niah_multikey_2", "vt"):
        depths = [d for q in RulerTask(setting, 4000).questions(source) for d in q.meta["depths"]]
        assert min(depths) < 0.1
        assert max(depths) > 0.85
        assert 0.35 < sum(depths) / len(depths) < 0.65


@pytest.mark.parametrize("setting", TASK_NAMES)
def test_too_short_a_length_is_refused_and_the_one_that_is_named_suffices(setting, materials):
    source = Source(materials, limit=3, tokenizer=byte_tokenizer())
    with pytest.raises(ValueError, match="does not fit into 256 tokens") as refused:
        RulerTask(setting, 256).questions(source)
    needed = int(str(refused.value).split("take ")[1].split()[0])
    assert len(RulerTask(setting, needed).questions(source)) == 3
    with pytest.raises(ValueError, match="does not fit"):
        RulerTask(setting, max(256, needed * 3 // 4)).questions(source)


def test_the_same_seed_makes_the_same_samples_whatever_their_number(materials):
    tokenizer = byte_tokenizer()
    for setting in TASK_NAMES:
        task = RulerTask(setting, 4000)
        few = task.questions(Source(materials, limit=2, seed=3, tokenizer=tokenizer))
        assert few == task.questions(Source(materials, limit=4, seed=3, tokenizer=tokenizer))[:2]
        assert few != task.questions(Source(materials, limit=2, seed=4, tokenizer=tokenizer))


def test_special_tokens_and_chat_templates_are_counted(materials):
    tokenizer = byte_tokenizer(bos=True)
    counter = TokenCounter(tokenizer)
    assert counter.prompt("four", " five") == 1 + 9  # <s>, and no </s> behind
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}"
    )
    assert TokenCounter(tokenizer, chat=True).prompt("four", " five") == len("[four]> five")
    task = RulerTask("niah_single_1", 2000)
    (question,) = task.questions(Source(materials, limit=1, tokenizer=tokenizer, chat=True))
    assert question.meta["tokens"] == len(prompt_tokens(tokenizer, question.prompt, question.prefix, chat=True))


def test_fit_finds_the_largest_number_of_units_however_wrong_the_sums_are():
    """Units of 7 bytes that are said to have 5, 7 or 11."""
    counter = TokenCounter(byte_tokenizer())
    for said in (5, 7, 11):
        draft = Draft([], lambda n: Rendered("x" * (10 + 7 * n), ""), lambda n: said * n)  # noqa: B023
        for budget in range(17, 400):
            _, units, tokens = fit(draft, budget, counter)
            assert tokens == 10 + 7 * units <= budget
            assert budget - tokens < max(said, 7)


def test_a_running_sum_reads_no_further_than_it_must():
    counter = TokenCounter(byte_tokenizer())
    read = []

    def source():
        for i in range(1000):
            read.append(i)
            yield "x" * (i % 3)

    sums = RunningSum(counter, source())
    assert sums.total(300) == sum(i % 3 for i in range(300))
    assert len(read) <= 512
    with pytest.raises(IndexError):
        sums.total(1001)
