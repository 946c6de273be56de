"""Every task: of the length asked for, whole, repeatable, for three kinds of tokenizer; refused where it cannot fit."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from material import bpe_tokenizer, byte_tokenizer, unigram_tokenizer

from iha.evaluate.prompts import prompt_tokens
from iha.evaluate.protocol import Question, Source
from iha.evaluate.ruler.lengths import TokenCounter, fit
from iha.evaluate.ruler.materials import Materials
from iha.evaluate.ruler.settings import FAMILIES, TASK_NAMES
from iha.evaluate.ruler.tasks import RulerTask, Workshop

TOKENIZERS = {
    "bytes": cache(byte_tokenizer),
    "bytes with <s>": cache(lambda: byte_tokenizer(bos=True)),
    "bpe": cache(bpe_tokenizer),
    "unigram": cache(unigram_tokenizer),
}


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


def test_chat_templates_are_counted(materials):
    tokenizer = byte_tokenizer(bos=True)
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}"
    )
    task = RulerTask("niah_single_1", 2000)
    (question,) = task.questions(Source(materials, limit=1, tokenizer=tokenizer, chat=True))
    assert question.meta["tokens"] == len(prompt_tokens(tokenizer, question.prompt, question.prefix, chat=True))


def test_questions_are_kept_and_made_again_for_other_settings(materials, tmp_path):
    def source(**changes):
        options = {"limit": 2, "tokenizer": byte_tokenizer(), "cache": tmp_path, **changes}
        return Source(materials, **options)

    task = RulerTask("niah_single_1", 2000)
    first = task.questions(source())
    (kept,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert task.questions(source()) == first == task.generate(source())
    assert task.questions(source(seed=1)) != first
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2
    assert kept.is_file()


def test_scores_are_nvidia_s_and_lm_eval_s():
    """Question answering takes any of the references, everything else the share of them."""
    for setting, score in (("qa_1", 1.0), ("vt", 0.5)):
        task, asked = RulerTask(setting, 4096), Question("0", "", ["one", "two"], 8)
        ((verdict,),) = task.judge([asked], [["It is one."]])
        assert task.score([verdict]) == {"RULER": score, "lm-eval": 0.5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("niah", 4096), "RULER has no task 'niah'"), (("vt", 255), "got 255"), (("vt", 131073), "got 131073")],
)
def test_bad_tasks_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        RulerTask(*arguments)
