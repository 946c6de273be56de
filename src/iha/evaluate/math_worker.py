"""math-verify in a separate process: one JSON request per line on stdin, one answer per line on stdout.

A model can write 9^{9^{9^9}}. math-verify limits wall-clock time, so a busy machine would fail correct answers. Here
CPU time is limited instead. Python handles that signal only between two operations on numbers. When that is too late,
the parent process kills this one. Run as a file: it imports nothing from the project, because that would take longer
than its own imports.
"""

import json
import logging
import resource
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

MEMORY_BYTES = 4 << 30
CPU_SECONDS = 10.0  # of one request


def boxed(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


def respond(request: dict[str, str]) -> dict[str, Any]:
    import math_verify

    def parse(text: str) -> list[Any]:
        found: list[Any] = math_verify.parse(text, parsing_timeout=None)
        return found

    def verify(gold: list[Any], found: list[Any]) -> bool:
        return bool(math_verify.verify(gold, found, timeout_seconds=None))

    if "text" in request:
        found = parse(request["text"])
        if not found:
            return {"answer": None, "right": False}
        answer = found[-1] if isinstance(found[-1], str) else str(found[0])
        return {"answer": answer, "right": verify(parse(boxed(request["gold"])), found)}
    return {"same": verify(parse(boxed(request["first"])), parse(boxed(request["second"])))}


class OutOfTimeError(BaseException):
    """Not an Exception: math-verify catches those and goes on."""


def stop(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise OutOfTimeError(f"not done after {CPU_SECONDS:g} s of CPU time")


def main() -> None:
    signal.signal(signal.SIGPROF, stop)
    logging.disable(logging.CRITICAL)  # math-verify logs every text that it cannot read
    respond({"text": "$1$", "gold": "1"})  # sympy's imports
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            response = respond(json.loads(line))
        except (Exception, OutOfTimeError) as error:
            response = {"error": f"{type(error).__name__}: {error}"[:200]}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(response), flush=True)


if __name__ == "__main__":
    main()
