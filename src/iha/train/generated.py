"""Documents made by a program. A generator is a pure function of (seed, index) and its options.

    def counting(seed: int, index: int, *, length: int) -> Document: ...

    GENERATORS["counting"] = counting

A recipe then has a source `{kind: generated, generator: counting, count: 10000, options: {length: 20}}`. Its documents are
tokenised into shards like any others, so training reads all sources alike.
"""

from collections.abc import Callable

from iha.train.documents import Document

Generator = Callable[..., Document]  # (seed, index, **options)

GENERATORS: dict[str, Generator] = {}


def generator(name: str | None) -> Generator:
    if name not in GENERATORS:
        raise ValueError(f"no generator {name!r}; there are: {', '.join(sorted(GENERATORS)) or 'none'}")
    return GENERATORS[name]
