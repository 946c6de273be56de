"""Batches, padding, stop strings and shared reading change nothing about the texts."""

import pytest
import torch
from material import byte_tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from iha.evaluate.engine import HuggingFaceEngine, cut_at
from iha.evaluate.protocol import Decoding, Question
from iha.models import IHAConfig, IHAForCausalLM

SIZES = {
    "vocab_size": 258, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.3, "tie_word_embeddings": False,
    "eos_token_id": None, "bos_token_id": None, "pad_token_id": None,
}  # fmt: skip


def build(kind: str):
    torch.manual_seed(0)
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    return IHAForCausalLM(IHAConfig(**SIZES, attention=kind, window=6, global_every=3)).eval()


def questions(*prompts: str, **options) -> list[Question]:
    return [Question(str(i), prompt, "", **{"max_new_tokens": 9} | options) for i, prompt in enumerate(prompts)]


PROMPTS = ("a short one", "one that is a good deal longer than the first", "x", "and one in between")
KINDS = ("iha", "global_local", "llama")


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_texts_do_not_depend_on_the_batch(kind):
    engine = HuggingFaceEngine(build(kind), byte_tokenizer())
    together = engine.answer(questions(*PROMPTS), Decoding(), "s")
    alone = [engine.answer([question], Decoding(), "s")[0] for question in questions(*PROMPTS)]
    assert together == alone
    assert len({texts[0] for texts in together}) == len(PROMPTS), "the model says too little for this to be a test"


@pytest.mark.parametrize("kind", KINDS)
def test_samples_that_share_the_reading_are_those_that_do_not(kind):
    engine = HuggingFaceEngine(build(kind), byte_tokenizer())
    decoding = Decoding(samples=5, temperature=0.7, top_p=0.9)
    shared = engine.answer(questions(*PROMPTS), decoding, "s")
    engine._read_once = lambda ids, mask, samples: None
    assert engine.answer(questions(*PROMPTS), decoding, "s") == shared
    assert len({text for texts in shared for text in texts}) > len(PROMPTS)


def test_samples_depend_on_the_seed_alone():
    engine = HuggingFaceEngine(build("iha"), byte_tokenizer())
    decoding = Decoding(samples=3, temperature=1.0)
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = engine.answer(questions(*PROMPTS), decoding, "s")
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's randomness is the caller's
    torch.manual_seed(2)
    assert engine.answer(questions(*PROMPTS), decoding, "s") == first
    assert engine.answer(questions(*PROMPTS), decoding, "t") != first


def test_texts_end_before_the_first_stop_string_and_generation_ends_with_it():
    engine = HuggingFaceEngine(build("iha"), byte_tokenizer())
    (whole,) = engine.answer(questions(PROMPTS[0], max_new_tokens=40), Decoding(), "s")[0]
    stop = whole[5:7]
    expected = whole[: whole.index(stop)]
    steps = []
    forward = engine.model.forward
    engine.model.forward = lambda *a, **k: steps.append(1) or forward(*a, **k)
    assert engine.answer(questions(PROMPTS[0], max_new_tokens=40, stop=(stop, "§§")), Decoding(), "s") == [[expected]]
    assert len(steps) < 40


def test_cut_at():
    assert cut_at("one two three", ["three", "two"]) == "one "
    assert cut_at("one", ["two"]) == "one"
    assert cut_at("one", []) == "one"


def test_the_end_token_ends_a_text():
    model = build("iha")
    engine = HuggingFaceEngine(model, byte_tokenizer())
    assert engine.ends == [257]
    (whole,) = engine.answer(questions("a"), Decoding(), "s")[0]
    engine.ends = engine.tokenizer(next(letter for letter in whole[2:] if letter.isascii()))["input_ids"]
    (cut,) = engine.answer(questions("a"), Decoding(), "s")[0]
    assert whole.startswith(cut)
    assert len(cut) < len(whole)


def test_what_a_checkpoint_recommends_is_not_used():
    model = build("iha")
    engine = HuggingFaceEngine(model, byte_tokenizer())
    plain = engine.answer(questions(*PROMPTS), Decoding(), "s")
    model.generation_config = GenerationConfig(repetition_penalty=5.0, do_sample=True, temperature=2.0)
    recommended = model.generation_config
    assert engine.answer(questions(*PROMPTS), Decoding(), "s") == plain
    assert model.generation_config is recommended


def test_batches_are_sorted_by_length_and_hold_all_samples():
    engine = HuggingFaceEngine(build("llama"), byte_tokenizer(), batch_size=8)
    asked = questions(*PROMPTS)
    assert engine.batches(asked, Decoding()) == [[1, 3, 0, 2]]
    assert engine.batches(asked, Decoding(samples=4, temperature=1)) == [[1, 3], [0, 2]]
    assert engine.batches(asked, Decoding(samples=16, temperature=1)) == [[1], [3], [0], [2]]


def test_prompts_are_never_cut_but_answers_end_with_the_context():
    engine = HuggingFaceEngine(build("llama"), byte_tokenizer(), max_length=20)
    with pytest.raises(ValueError, match="45 tokens, the model takes 20"):
        engine.batches(questions(*PROMPTS), Decoding())
    asked = questions("a" * 15, "a")
    assert engine.clipped(asked) == 1
    (clipped,), (free,) = engine.answer(asked, Decoding(), "s")
    engine.max_length = None
    (whole,), (same,) = engine.answer(asked, Decoding(), "s")
    assert free == same
    assert whole.encode()[:4] == clipped.encode()[:4]
    assert engine.clipped(asked) == 0


def test_two_checkpoints_have_two_identities():
    tokenizer, model = byte_tokenizer(), build("llama")
    before = HuggingFaceEngine(model, tokenizer).identity()
    assert HuggingFaceEngine(build("llama"), tokenizer).identity() == before
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] += 1
    assert HuggingFaceEngine(model, tokenizer).identity() != before


def test_what_does_not_belong_together_is_refused():
    with pytest.raises(ValueError, match="no chat template"):
        HuggingFaceEngine(build("llama"), byte_tokenizer(), chat=True)
    with pytest.raises(ValueError, match="258 tokens, the model only 100"):
        HuggingFaceEngine(LlamaForCausalLM(LlamaConfig(**SIZES | {"vocab_size": 100})), byte_tokenizer())
    with pytest.raises(ValueError, match="got 0"):
        HuggingFaceEngine(build("llama"), byte_tokenizer(), batch_size=0)
