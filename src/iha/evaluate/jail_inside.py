"""What runs inside the jail (see jail.py): the checker, and the program under test in a separate process.

The jail starts this file with `python -c`; it imports nothing of the project. The checker forks before it has read the
tests, so that neither they nor the expected answers are ever in the program's memory, and runs them itself. In the
tests, the program's functions are stand-ins that send the arguments over a pipe and get the answer back. Only plain
values cross (numbers, strings, lists, tuples, sets, dicts): the checker never runs anything that the program sent, and
compares with Python's own ==. Everything else stays with the program, and the checker holds a handle to it.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import json
import os
import resource

TYPE_CHECKING = False  # typing itself takes as long to import as the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn


def read_message(fd: int, limit: int) -> Any:
    """One message: its length in 8 hexadecimal digits, then JSON. None at the end of the file."""
    head = read_bytes(fd, 8)
    if head is None:
        return None
    size = int(head, 16)
    if size > limit:
        raise ValueError(f"a message of {size} bytes is larger than {limit}")
    body = read_bytes(fd, size)
    return None if body is None else json.loads(body)


def read_bytes(fd: int, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = os.read(fd, min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def write_message(fd: int, message: Any) -> None:
    body = json.dumps(message).encode()
    rest = memoryview(b"%08x" % len(body) + body)
    while rest:
        rest = rest[os.write(fd, rest) :]


def encode(value: Any, handle: Callable[[Any], int]) -> Any:
    """A plain value as JSON; subclasses as their base class; `handle(value)` stands for all others."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return ["int", hex(int.__index__(value))]
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, complex):
        return ["complex", float.hex(value.real), float.hex(value.imag)]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes" if isinstance(value, bytes) else "bytearray", value.hex()]
    if isinstance(value, dict):
        return ["dict", [[encode(k, handle), encode(v, handle)] for k, v in dict.items(value)]]
    if isinstance(value, range):
        return ["range", *(encode(edge, handle) for edge in (value.start, value.stop, value.step))]
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return [kind.__name__, [encode(item, handle) for item in kind(value)]]
    if type(value).__name__ in ("Fraction", "Decimal") and type(value).__module__ in ("fractions", "decimal"):
        return [type(value).__name__, str(value)]
    if isinstance(value, type):
        name = value.__name__
        if getattr(builtins, name, None) is value:  # int, str, ...
            return ["type", name]
    return ["handle", handle(value)]


def decode(message: Any, held: Callable[[int], Any]) -> Any:
    """The value again; `held(number)` is what a handle stands for."""
    if not isinstance(message, list):
        return message
    kind, *rest = message
    if kind == "int":
        return int(rest[0], 16)
    if kind == "float":
        return float.fromhex(rest[0])
    if kind == "complex":
        return complex(float.fromhex(rest[0]), float.fromhex(rest[1]))
    if kind in ("bytes", "bytearray"):
        return bytes.fromhex(rest[0]) if kind == "bytes" else bytearray.fromhex(rest[0])
    if kind == "dict":
        return {decode(k, held): decode(v, held) for k, v in rest[0]}
    if kind == "range":
        return range(*(decode(edge, held) for edge in rest))
    if kind in ("list", "tuple", "set", "frozenset"):
        return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](
            decode(item, held) for item in rest[0]
        )
    if kind == "Fraction":
        from fractions import Fraction

        return Fraction(rest[0])
    if kind == "Decimal":
        from decimal import Decimal

        return Decimal(rest[0])
    if kind == "type":
        builtin = getattr(builtins, rest[0])
        if not isinstance(builtin, type):
            raise TypeError(f"{rest[0]} is not a type")
        return builtin
    return held(rest[0])


# The program's side.


def confine(limits: dict[str, int], filter_bytes: bytes) -> None:
    """Set limits that the program cannot raise and a filter that it cannot remove."""
    hard = {
        resource.RLIMIT_AS: limits["memory_bytes"],
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_NPROC: limits["threads"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    for limit, value in hard.items():
        resource.setrlimit(limit, (value, value))

    class Program(ctypes.Structure):  # struct sock_fprog
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    program = Program(len(filter_bytes) // 8, filter_bytes)
    prctl(38, 1)  # PR_SET_NO_NEW_PRIVS
    prctl(22, 2, ctypes.byref(program))  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def prctl(option: int, *arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    padded = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in (*arguments, 0, 0, 0, 0)[:4]]
    if libc.prctl(option, *padded) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def program_process(code: str, requests: int, replies: int, limit: int) -> NoReturn:
    """Run the program, then serve the tests' requests until there are no more. Never returns."""
    held: list[Any] = []

    def handle(value: Any) -> int:
        held.append(value)
        return len(held) - 1

    names: dict[str, Any] = {"__name__": "program"}
    actions: dict[str, Callable[..., Any]] = {
        "name": lambda name: names[name],
        "call": lambda function, positional, named: function(*positional, **named),
        "getattr": getattr,
        "setattr": setattr,
        "getitem": lambda value, key: value[key],
        "len": len,
        "iter": iter,
        "next": next,
        "bool": bool,
        "str": str,
        "contains": lambda value, item: item in value,
    }

    def reply(action: Callable[[], Any]) -> None:
        try:
            answer = ["value", encode(action(), handle)]
        except BaseException as error:  # sys.exit too
            kind = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
            answer = ["error", kind, describe(error)]
        write_message(replies, answer)

    if "random" in code:  # the same verdict every time
        import random

        random.seed(0)
    reply(lambda: exec(compile(code, "program.py", "exec"), names))
    while (request := read_message(requests, limit)) is not None:
        action, *arguments = request
        reply(lambda: actions[action](*(decode(argument, held.__getitem__) for argument in arguments)))  # noqa: B023
    os._exit(0)


def describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except BaseException:  # of the program's own __str__
        return type(error).__name__


# The checker's side.


class ProgramEnded(BaseException):
    """Not an Exception, so that no test can swallow it."""


class Answers:
    """Asks the program's process; one question at a time."""

    def __init__(self, pid: int, requests: int, replies: int, limit: int) -> None:
        self.pid, self.requests, self.replies, self.limit = pid, requests, replies, limit

    def ask(self, *request: Any) -> Any:
        with contextlib.suppress(BrokenPipeError):
            write_message(self.requests, [request[0], *(encode(part, self.handle) for part in request[1:])])
        return self.receive(request[0])

    def receive(self, action: str) -> Any:
        try:
            message = read_message(self.replies, self.limit)
        except (ValueError, TypeError) as error:
            raise ProgramEnded(f"no answer that can be read: {error}"[:300]) from None
        if message is None:
            status = os.waitpid(self.pid, 0)[1]
            raise ProgramEnded(f"ended before the tests did, exit status {os.waitstatus_to_exitcode(status)}")
        if message[0] == "value":
            return decode(message[1], lambda number: Handle(self, number))
        kind = getattr(builtins, str(message[1]), None)
        if not isinstance(kind, type) or not issubclass(kind, Exception):  # SystemExit, KeyboardInterrupt
            raise ProgramEnded(f"ended itself: {message[2]}"[:300])
        if kind is StopIteration and action != "next":  # elsewhere it would silently end a map() of the tests
            kind = RuntimeError
        try:
            raised = kind(message[2])
        except TypeError:  # UnicodeDecodeError wants five arguments
            raised = RuntimeError(message[2])
        raise raised

    @staticmethod
    def handle(value: Any) -> int:
        if type(value) is not Handle:
            raise TypeError(f"a test may not pass a {type(value).__name__} to the program")
        number: int = object.__getattribute__(value, "_number")
        return number


class Handle:
    """Something of the program's that is no plain value: a function, a class, an object, an iterator.

    It equals only itself, even if the object's own __eq__ claims to equal everything.
    """

    def __init__(self, answers: Answers, number: int) -> None:
        object.__setattr__(self, "_answers", answers)
        object.__setattr__(self, "_number", number)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self._answers.ask("call", self, positional, named)

    def __getattr__(self, name: str) -> Any:
        return self._answers.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._answers.ask("setattr", self, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._answers.ask("getitem", self, key)

    def __len__(self) -> int:
        return self._answers.ask("len", self)

    def __iter__(self) -> Iterator[Any]:
        return self._answers.ask("iter", self)

    def __next__(self) -> Any:
        return self._answers.ask("next", self)

    def __bool__(self) -> bool:
        return self._answers.ask("bool", self)

    def __str__(self) -> str:
        return self._answers.ask("str", self)

    def __contains__(self, item: Any) -> bool:
        return self._answers.ask("contains", self, item)


def verdict(answers: Answers, names: list[str], setup: str, tests: list[str]) -> tuple[str, str]:
    """How the program ended under its tests: one word for the status, and a detail."""
    try:
        answers.receive("run")  # of running the program itself
    except ProgramEnded as end:
        return "exited", str(end)
    except BaseException as error:
        return "error", describe(error)
    namespace: dict[str, Any] = {"__name__": "tests"}
    if any("random" in test for test in tests):
        import random

        random.seed(0)
    index = -1
    try:
        exec(compile(setup, "setup.py", "exec"), namespace)
        for name in names:
            namespace.pop(name, None)  # the setup may hold the unfinished function, which is not to be tested
            with contextlib.suppress(KeyError):
                namespace[name] = answers.ask("name", name)
        for index, test in enumerate(tests):
            exec(compile(test, f"test {index}", "exec"), namespace)
    except ProgramEnded as end:
        return "exited", str(end)
    except AssertionError as error:
        return "wrong", f"test {index}: {describe(error)}"
    except BaseException as error:
        return "error", f"test {index}: {describe(error)}"
    return "passed", ""


def main() -> None:
    result = os.dup(1)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    order = read_message(0, 1 << 30)
    limits, limit = order["limits"], order["limits"]["message_bytes"]
    if order["uid"] is not None:
        os.setgroups([])
        os.setresgid(*[order["uid"]] * 3)
        os.setresuid(*[order["uid"]] * 3)
    prctl(4, 0)  # PR_SET_DUMPABLE: the program, though the same user, can neither trace nor read the checker
    to_program, to_checker = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(nothing, 0)
        requests, replies = os.dup2(to_program[0], 100), os.dup2(to_checker[1], 101)
        os.closerange(3, 100)
        os.closerange(102, 1024)
        confine(limits, bytes.fromhex(order["filter"]))
        program_process(order["code"], requests, replies, limit)
    os.close(to_program[0])
    os.close(to_checker[1])
    resource.setrlimit(resource.RLIMIT_AS, (limits["memory_bytes"],) * 2)
    checks = read_message(0, 1 << 30)
    answers = Answers(pid, to_program[1], to_checker[0], limit)
    write_message(result, verdict(answers, checks["names"], checks["setup"], checks["tests"]))
    os._exit(0)


if __name__ == "__main__":
    main()
