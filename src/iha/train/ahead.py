"""Work on a recipe's data that begins while the trainer is still being imported. It writes nothing, so that what is
refused later leaves nothing behind."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from iha.train.prepare import sample
from iha.train.recipe import Data
from iha.train.tokenise import train_tokenizer


@contextmanager
def tokenizer_ahead(data: Data, seed: int) -> Iterator[Callable[[], str | None]]:
    """Another process trains the tokenizer: importing torch and transformers takes one core about as long.

    Gives a function that waits for the tokenizer.json. None where training failed: whoever then trains it meets the
    error themselves, and in its place.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_train, args=(data, seed, theirs), daemon=True)
    process.start()
    theirs.close()  # so that its end is noticed

    def trained() -> str | None:
        try:
            return ours.recv()
        except EOFError:
            return None

    try:
        yield trained
    finally:
        process.terminate()
        process.join()
        ours.close()


def _train(data: Data, seed: int, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    try:
        connection.send(train_tokenizer(sample(data.sources, seed), data.tokenizer.vocab_size))
    except Exception:  # of any reader, and a parent that is gone
        connection.close()
