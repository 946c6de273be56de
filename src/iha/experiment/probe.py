"""Puzzles to test a model while it trains: when does it learn to retrieve facts and to chain them?"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from iha.train.puzzles import Puzzle, generate
from iha.train.segments import Segment
from iha.train.tokenise import TextTokenizer

KINDS = {"pairs": "pairs", "needles": "needles", "hops": "hops", "arithmetic": "steps"}  # puzzle: the fact to split by
BATCH, BATCH_TOKENS = 16, 4096  # puzzles at a time, at most: mechanisms that keep all scores need memory by the square


@dataclass(frozen=True)
class Asked:
    """A puzzle as tokens, with the places of its answers."""

    tokens: Tensor  # (N,)
    answers: tuple[tuple[int, int], ...]  # [from, to) of each answer
    name: str  # what its answers count for, e.g. "hops 2"


def questions(tokenizer: TextTokenizer, context: int, count: int, seed: int = 0) -> list[Asked]:
    """A number of puzzles of each kind from the test split, without those that do not fit into the context."""
    found = []
    for kind, fact in KINDS.items():
        puzzles = (generate(kind, "test", seed, index) for index in range(count))
        asked = [ask(tokenizer, puzzle, f"{kind} {puzzle.facts[fact]}") for puzzle in puzzles]
        found += [question for question in asked if len(question.tokens) <= context]
    return found


def ask(tokenizer: TextTokenizer, puzzle: Puzzle, name: str) -> Asked:
    tokens: list[int] = []
    answers = []
    for piece in puzzle.pieces:
        ids = tokenizer.encode([Segment(piece.text)]).tokens[:-1].tolist()  # without the end of the document
        if piece.is_answer:
            answers.append((len(tokens), len(tokens) + len(ids)))
        tokens += ids
    return Asked(torch.tensor(tokens), tuple(answers), name)


@torch.no_grad()
def accuracies(model: PreTrainedModel, asked: Sequence[Asked]) -> dict[str, float]:
    """The share of answers that greedy decoding would give in full, per kind and per number of hops, pairs, ….

    Greedy decoding gives an answer exactly when every token of it is the most likely one after the true tokens before.
    So one forward pass decides all answers of a puzzle, without generating.
    """
    right: dict[str, list[bool]] = defaultdict(list)
    order = sorted(range(len(asked)), key=lambda index: len(asked[index].tokens))
    device = next(model.parameters()).device
    while order:  # the longest first: if the memory is too small, that shows at once
        size = min(BATCH, max(1, BATCH_TOKENS // len(asked[order[-1]].tokens)))
        batch, order = [asked[index] for index in order[-size:]], order[:-size]
        tokens = torch.nn.utils.rnn.pad_sequence([question.tokens for question in batch], batch_first=True)
        # Padding comes after every position that is read, so causal attention does not see it.
        guesses = model(input_ids=tokens.to(device), use_cache=False).logits.argmax(-1).cpu()  # (B, N)
        for row, question in zip(guesses, batch, strict=True):
            for begin, end in question.answers:
                correct = torch.equal(row[begin - 1 : end - 1], question.tokens[begin:end])
                right[question.name].append(correct)
                right[question.name.split()[0]].append(correct)
    return {name: sum(hits) / len(hits) for name, hits in sorted(right.items())}
