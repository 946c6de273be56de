"""math-verify in a process of its own: one JSON request per line on stdin, one answer per line on stdout.

A model can write 9^{9^{9^9}}. math-verify stops itself by a signal, which Python looks at only between two operations
on numbers; the process that started this one ends it when that is not enough. Run as a file: it imports nothing of the
project, whose import takes longer than its own.
"""

import json
import logging
import resource
import sys
from typing import Any

MEMORY_BYTES = 4 << 30


def boxed(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


def respond(request: dict[str, str]) -> dict[str, Any]:
    from math_verify import parse, verify

    if "text" in request:
        found = parse(request["text"])
        if not found:
            return {"answer": None, "right": False}
        answer = found[-1] if isinstance(found[-1], str) else str(found[0])
        return {"answer": answer, "right": verify(parse(boxed(request["gold"])), found)}
    return {"same": verify(parse(boxed(request["first"])), parse(boxed(request["second"])))}


def main() -> None:
    logging.disable(logging.CRITICAL)  # math-verify logs every text that it cannot read
    respond({"text": "$1$", "gold": "1"})  # sympy's imports
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            response = respond(json.loads(line))
        except (Exception, RecursionError) as error:
            response = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(response), flush=True)


if __name__ == "__main__":
    main()
