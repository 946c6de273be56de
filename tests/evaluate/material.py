"""Small stand-ins for RULER's essays, documents and tokenizers, made here so that the tests need no files."""

import json
from pathlib import Path
from random import Random

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

WORDS = ["people", "who", "start", "things", "tend", "to", "be", "curious", "about", "how", "the", "world", "works"]


def essays(words: int = 3000, seed: int = 0) -> str:
    rng, text = Random(seed), []
    while len(text) < words:
        sentence = [rng.choice(WORDS) for _ in range(rng.randint(4, 20))]
        text += [sentence[0].capitalize(), *sentence[1:-1], sentence[-1] + rng.choice([".", "?", ".", '."'])]
    return " ".join(text)


def write_materials(folder: Path) -> Path:
    """Essays, SQuAD and HotpotQA in NVIDIA's layouts."""
    (folder / "PaulGrahamEssays.json").write_text(json.dumps({"text": essays()}))
    articles = []
    for a in range(5):
        paragraphs = []
        for p in range(6):
            answers = [{"text": f"Town {a}{p}"}, {"text": f"in Town {a}{p}"}]
            qas = [
                {"question": f"Where is place {a}{p}?", "answers": answers, "is_impossible": False},
                {"question": "What is nowhere?", "answers": [], "is_impossible": True},
            ]  # fmt: skip
            paragraphs.append({"context": f"Place {a}{p} lies in Town {a}{p}. {essays(25, 10 * a + p)}", "qas": qas})
        articles.append({"paragraphs": paragraphs})
    (folder / "squad.json").write_text(json.dumps({"data": articles}))
    rows = []
    for i in range(12):
        titles = [f"Title {i} {j}" for j in range(10)]
        context = [[title, [f"{title} is here.", f" {essays(15, 100 + i)}"]] for title in titles]
        facts = [[titles[3], 0], [titles[7], 1], [titles[3], 1]]
        rows.append(
            {"question": f"Who is {i}?", "answer": f"Title {i} 3", "context": context, "supporting_facts": facts}
        )
    rows.append({**rows[0], "supporting_facts": [["Absent", 0]]})
    (folder / "hotpotqa.json").write_text(json.dumps(rows))
    return folder


def byte_tokenizer(bos: bool = False) -> PreTrainedTokenizerFast:
    """One token per byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)} | {"<s>": 256, "</s>": 257}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 256), ("</s>", 257)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="<s>", pad_token="</s>")


def bpe_tokenizer() -> PreTrainedTokenizerFast:
    """GPT-2's kind."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=["</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([essays(), "Document 1:\nThe special magic numbers for"], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="</s>")


def unigram_tokenizer() -> PreTrainedTokenizerFast:
    """SentencePiece's kind, its pieces crossing words and lines: counts of pieces do not add up exactly."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    lines = [essays(400, seed) for seed in range(6)] + ["The grass is green. The sky is blue. The sun is yellow."] * 4
    letters = list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789▁.,:;?!'\"()=-\n")
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["</s>", "<unk>"], unk_token="<unk>", initial_alphabet=letters
    )
    tokenizer.train_from_iterator(lines, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="</s>", unk_token="<unk>")
