"""The 13 official settings: NVIDIA/RULER, scripts/synthetic.yaml and scripts/data/synthetic/constants.py (Apache-2.0).

Scores are comparable with published ones only if the prompts are exactly NVIDIA's.
"""

from dataclasses import dataclass

DEFAULT_SAMPLES = 500
LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072)  # NVIDIA's


@dataclass(frozen=True)
class Family:
    template: str
    prefix: str  # how the answer begins; the model continues it
    new_tokens: int


NIAH = Family(
    "Some special magic {type} are hidden within the following text. Make sure to memorize it. I will quiz you about "
    "the {type} afterwards.\n{context}\nWhat are all the special magic {type} for {query} mentioned in the "
    "provided text?",
    " The special magic {type} for {query} mentioned in the provided text are",
    128,
)
VARIABLE_TRACKING = Family(
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{context}\n"
    "Question: Find all variables that are assigned the value {query} in the text above.",
    # The misspelling is RULER's own: scores are comparable only with its very words.
    " Answer: According to the chain(s) of variable assignment in the text above, {count} variables are assgined the "
    "value {query}, they are: ",
    30,
)
COMMON_WORDS = Family(
    "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that "
    "appear most often.\n{context}\nQuestion: What are the 10 most common words in the above list?",
    " Answer: The top 10 words that appear most often in the list are:",
    120,
)
FREQUENT_WORDS = Family(
    "Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared "
    "coded words. {context}\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the "
    "three most frequently appeared words in the above coded text?",
    " Answer: According to the coded text above, the three most frequently appeared words are:",
    50,
)
QUESTIONS = Family(
    "Answer the question based on the given documents. Only give me the answer and do not output any other words.\n\n"
    "The following are given documents.\n\n{context}\n\nAnswer the question based on the given documents. Only give me "
    "the answer and do not output any other words.\n\nQuestion: {query}",
    " Answer:",
    32,
)


@dataclass(frozen=True)
class Needles:
    """Settings of a needle-in-a-haystack task."""

    haystack: str  # "noise", "essay" or "needle": other needles
    key: str = "words"  # or "uuids"
    value: str = "numbers"  # or "uuids"
    keys: int = 1
    values: int = 1  # per key
    queries: int = 1

    @property
    def singular(self) -> bool:
        return self.queries * self.values == 1


NEEDLE_TASKS = {
    "niah_single_1": Needles("noise"),
    "niah_single_2": Needles("essay"),
    "niah_single_3": Needles("essay", value="uuids"),
    "niah_multikey_1": Needles("essay", keys=4),
    "niah_multikey_2": Needles("needle"),
    "niah_multikey_3": Needles("needle", key="uuids", value="uuids"),
    "niah_multivalue": Needles("essay", values=4),
    "niah_multiquery": Needles("essay", keys=4, queries=4),
}
READING_TASKS = {"qa_1": "squad", "qa_2": "hotpotqa"}
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(NEEDLE_TASKS, NIAH),
    "vt": VARIABLE_TRACKING,
    "cwe": COMMON_WORDS,
    "fwe": FREQUENT_WORDS,
    **dict.fromkeys(READING_TASKS, QUESTIONS),
}
TASK_NAMES = tuple(FAMILIES)
MULTI_KEY = ("niah_multikey_1", "niah_multikey_2", "niah_multikey_3")
