"""The walls of the jail, each with a program that pushes against it."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jailing import RIGHT, TEST, UNAVAILABLE, jailed, outcome

from iha.evaluate import jail
from iha.evaluate.jail import JailUnavailableError, Limits, Outcome, Program, check_jail, run_programs


def answer(expression: str, imports: str = "import os, sys, ctypes, socket, threading") -> str:
    """What an expression gives inside the jail, errors by their errno's name."""
    code = f"""
{imports}, errno
def f():
    try:
        return str({expression})
    except OSError as error:
        return errno.errorcode[error.errno]
    except BaseException as error:
        return type(error).__name__
"""
    found = outcome(code, ("raise ValueError('<' + f() + '>')",)).detail
    return found[found.index("<") + 1 : found.rindex(">")]


@jailed
def test_right_and_wrong_programs():
    assert outcome(RIGHT) == Outcome("passed")
    assert outcome("def f(x):\n    return x + x\n").status == "wrong"
    assert outcome("def g(x):\n    return x * x\n").detail == "test 0: NameError: name 'f' is not defined"
    assert outcome("def f(x) return").detail.startswith("SyntaxError")
    assert outcome("import numpy\n" + RIGHT).detail.startswith("ModuleNotFoundError")  # the standard library only


@jailed
def test_outcomes_come_in_the_order_of_the_programs():
    programs = [Program(f"def f():\n    return {i}", (f"assert f() == {i % 3}",), ("f",)) for i in range(9)]
    assert [outcome.passed for outcome in run_programs(programs, workers=3)] == [i < 3 for i in range(9)]


# Programs that try to pass without being right. `status` says how they end.
CHEATS = {
    "sys.exit": ("import sys\nsys.exit(0)", "exited"),
    "sys.exit when called": ("import sys\ndef f(x):\n    sys.exit(0)", "exited"),
    "os._exit": ("import os\nos._exit(0)", "exited"),
    "os._exit when called": ("import os\ndef f(x):\n    os._exit(0)", "exited"),
    "exit when the interpreter ends": ("import atexit, os\natexit.register(os._exit, 0)\nraise SystemExit", "exited"),
    "kill itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "exited"),
    "print the answer": ("print('passed')\nprint(4)\nprint('[\"passed\", \"\"]')", "error"),
    "write a verdict to every descriptor": (
        'import os\nfor fd in range(3, 200):\n    try:\n        os.write(fd, b\'00000010["passed",""]   \')\n'
        "    except OSError:\n        pass\n",
        "error",
    ),
    "an object that equals everything": (
        "class Equal:\n    __eq__ = lambda *_: True\n    __ne__ = lambda *_: False\ndef f(x):\n    return Equal()",
        "wrong",
    ),
    "a number that equals everything": (
        "class Equal(int):\n    __eq__ = lambda *_: True\nf = lambda x: Equal()",
        "wrong",
    ),
    "patch the builtins": (
        "import builtins\nbuiltins.AssertionError = type('Never', (Exception,), {})\n"
        "builtins.exec = builtins.compile = lambda *_: None\nf = lambda x: 0",
        "wrong",
    ),
    "patch the checker in its own process": (
        "import __main__, sys\nfor name, value in list(vars(__main__).items()):\n"
        "    if callable(value) and name != 'write_message':\n"
        "        setattr(__main__, name, lambda *_: ('passed', ''))\nf = lambda x: 0",
        "error",
    ),
    "look for the tests in memory, frames and arguments": (
        "import gc, sys\ndef f(x):\n    frame, seen = sys._getframe(), [repr(sys.argv)]\n"
        "    while frame:\n        seen.append(repr(frame.f_locals) + repr(frame.f_globals))\n"
        "        frame = frame.f_back\n"
        "    seen += [repr(o) for o in gc.get_objects() if isinstance(o, (list, dict, tuple))]\n"
        "    return 4 if any('assert ' + 'f(2)' in s for s in seen) else 0",
        "wrong",
    ),
    "kill the checker": ("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)", "killed"),
    "kill everybody": ("import os, signal\nos.kill(-1, signal.SIGKILL)", "killed"),
    "stop the iteration": ("def f(x):\n    raise StopIteration", "error"),
    "an answer that does not end": ("def f(x):\n    x = []\n    x.append(x)\n    return x", "error"),
    "an answer too large": ("def f(x):\n    return 'x' * (1 << 26)", "exited"),
    "an answer too deep": ("def f(x):\n    x = []\n    for _ in range(10**5):\n        x = [x]\n    return x", "error"),
}


@jailed
@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_fail(cheat):
    code, status = CHEATS[cheat]
    found = outcome(code)
    assert (found.status, found.passed) == (status, False), found


@jailed
def test_stop_iteration_does_not_end_a_map_of_the_tests():
    found = outcome("def f(x):\n    raise StopIteration", ("assert list(map(f, [2, 3])) is not None",))
    assert found.status == "error", found


# Programs that would harm: limits low, so that the tests are quick.
HARMS = {
    "fork bomb": ("import os\nwhile True:\n    os.fork()", "error"),
    "fork bomb that does not mind": (
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        "timeout",
    ),
    "thread bomb": (
        "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
        "error",
    ),
    "fill memory": ("x = bytearray(1 << 33)", "error"),
    "fill memory bit by bit": ("x = []\nwhile True:\n    x.append(bytearray(1 << 20))", "error"),
    "fill the disk": (
        "n = 0\nwhile True:\n    n += 1\n    open(f'/scratch/{n}', 'wb').write(bytes(1 << 20))",
        "error",
    ),
    "one large file": ("file = open('/scratch/x', 'wb')\nwhile True:\n    file.write(bytes(1 << 20))", "error"),
    "print gigabytes": ("while True:\n    print('x' * (1 << 20))", "timeout"),
    "send gigabytes": ("import os\nwhile True:\n    os.write(101, b'0' * (1 << 20))", "error"),
    "ignore every signal": (
        "import signal\nfor s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:\n"
        "    signal.signal(s, signal.SIG_IGN)\n"
        "while True:\n    pass",
        "timeout",
    ),
    "use up the processor": ("while True:\n    pass", "timeout"),
    "sleep": ("import time\ntime.sleep(1000)", "timeout"),
    "stop the checker": ("import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)", "timeout"),
    "leave a daemon": (
        "import subprocess\nsubprocess.Popen(['/bin/sh', '-c', 'sleep 1000'], start_new_session=True)",
        "error",
    ),
    "recurse without end": ("import sys\nsys.setrecursionlimit(10**9)\ndef g(x):\n    return g([x])\ng(0)", "error"),
}


@jailed
@pytest.mark.parametrize("harm", HARMS)
def test_harmful_programs_are_ended(harm, monkeypatch):
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"  # every process of the jail, and no other, has it
    interpreter = jail._interpreter()
    monkeypatch.setattr(jail, "_interpreter", lambda: (*interpreter, mark))
    code, status = HARMS[harm]
    limits = Limits(
        seconds=2.0, cpu_seconds=2, memory_bytes=1 << 28, scratch_bytes=8 << 20, file_bytes=2 << 20, threads=8
    )
    found = outcome(code + "\n" + RIGHT, limits=limits)
    # Where time, memory or processor run out depends on the machine's load: first of the expected and of these.
    assert found.status in {status, "timeout", "exited"}, found
    assert processes_with(mark, lambda found: found == 0) == 0


def processes_with(argument: str, until: Callable[[int], bool]) -> int:
    """How many processes of the whole machine have this among their arguments, when `until` holds or after 10 s."""
    for _ in range(100):
        found = 0
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                found += argument.encode() in file.read_bytes()
        if until(found):
            break
        time.sleep(0.1)
    return found


@jailed
def test_processes_with_finds_the_jail(monkeypatch):
    """The search above would find what is left of a jail."""
    interpreter, mark = jail._interpreter(), f"mark-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setattr(jail, "_interpreter", lambda: (*interpreter, mark))
    with ThreadPoolExecutor() as pool:
        running = pool.submit(outcome, "import time\ntime.sleep(99)", limits=Limits(seconds=5))
        assert processes_with(mark, lambda found: found >= 4) >= 4  # bubblewrap twice, the checker and the program
        assert running.result().status == "timeout"


@jailed
def test_processor_limit_ends_a_program_before_the_wall_clock_does():
    found = outcome("while True:\n    pass", limits=Limits(seconds=60, cpu_seconds=1))
    assert found == Outcome("exited", "ended before the tests did, exit status -9")


@jailed
def test_nothing_of_the_machine_is_there(tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o644)
    monkeypatch.setenv("SECRET_TOKEN", "secret")
    assert answer(f"open({str(secret)!r}).read()") == "ENOENT"
    assert answer("open('/etc/passwd').read()") == "ENOENT"
    assert answer("os.listdir('/proc')") == "ENOENT"
    assert answer("os.listdir('/home')") == "ENOENT"
    assert answer("sorted(os.listdir('/dev'))") == "['null', 'urandom']"
    assert "secret" not in answer("dict(os.environ)").lower()
    assert answer("os.getcwd()") == "/scratch"
    assert answer("os.getuid() != 0 and os.getgid() != 0 and os.getgroups() in ([], [65534], [os.getgid()])") == "True"
    assert answer("sys.stdin.read()") == ""
    assert answer("sorted(__import__('os').listdir('/scratch'))") == "[]"


@jailed
def test_writes_only_in_the_scratch_directory():
    assert answer("open('/scratch/x', 'w').write('x')") == "1"
    home = os.path.expanduser("~/x")
    for place in ("/x", "/dev/x", "/dev/shm/x", "/tmp/x", "/usr/lib/x", home, os.path.dirname(os.__file__) + "/x"):
        assert answer(f"open({place!r}, 'w')") in ("EROFS", "ENOENT", "EACCES", "EPERM"), place


@jailed
def test_refused_system_calls():
    call = "ctypes.CDLL(None, use_errno=True).syscall({}) or ctypes.get_errno()"
    assert answer("socket.socket()") == "EPERM"
    assert answer("socket.create_connection(('127.0.0.1', 1))") == "EPERM"
    assert answer("os.memfd_create('x')") == "EPERM"
    assert answer("os.execv(sys.executable, ['x'])") == "EPERM"
    assert answer("os.fork()") == "EPERM"
    assert answer("os.chroot('/scratch')") == "EPERM"
    unshare = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
    assert answer(f"({call.format(f'{unshare}, 0x10000000')}, ctypes.get_errno())").endswith(", 1)")  # a user namespace
    assert answer(
        "ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0) and os.strerror(ctypes.get_errno())"
    ) in (
        "Operation not permitted",
        "-1",
    )
    assert answer("__import__('resource').setrlimit(9, (1 << 40, 1 << 40))") == "ValueError"  # RLIMIT_AS, upwards


@jailed
def test_threads_work_and_are_counted():
    code = """
import threading
def f(n):
    gate, made = threading.Event(), []
    try:
        for _ in range(n):
            made.append(threading.Thread(target=gate.wait))
            made[-1].start()
    except RuntimeError:
        made.pop()
    gate.set()
    return len(made)
"""
    assert outcome(code, ("assert f(3) == 3",)).passed
    assert outcome(code, ("assert 3 < f(1000) <= 16",), Limits(threads=16)).passed


@jailed
def test_verdicts_repeat():
    code = "import random\ndef f():\n    return str(set('abcdefghij')), random.random()"
    program = Program(code, ("raise ValueError(str(f()))",), ("f",))
    assert len(set(run_programs([program] * 4))) == 1


def test_refuses_without_bubblewrap(monkeypatch):
    monkeypatch.setattr(jail.shutil, "which", lambda _: None)
    with pytest.raises(JailUnavailableError, match="apt install bubblewrap"):
        check_jail.__wrapped__()


def test_refuses_on_other_machines(monkeypatch):
    monkeypatch.setattr(jail, "_filter", lambda: jail.seccomp_filter("riscv64"))
    with pytest.raises(JailUnavailableError, match="riscv64"):
        check_jail.__wrapped__()
    monkeypatch.setattr(jail.sys, "platform", "darwin")
    with pytest.raises(JailUnavailableError, match="darwin"):
        check_jail.__wrapped__()


def test_refuses_where_namespaces_are_forbidden(monkeypatch, tmp_path):
    """A bwrap that fails as it does under Ubuntu's AppArmor."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(JailUnavailableError, match="setting up uid map: Permission denied"):
        check_jail.__wrapped__()
    monkeypatch.setattr(jail, "check_jail", check_jail.__wrapped__)
    with pytest.raises(JailUnavailableError):  # and not one program runs
        run_programs([Program(RIGHT, TEST, ("f",))])


def test_refuses_when_a_wall_gives_way(monkeypatch):
    if UNAVAILABLE:
        pytest.skip(UNAVAILABLE)
    walls = jail._walls(os.geteuid() == 0)
    monkeypatch.setattr(jail, "_walls", lambda root: (*walls, "--ro-bind", "/etc", "/etc"))
    with pytest.raises(JailUnavailableError, match="it can read the password file"):
        check_jail.__wrapped__()


def test_limits_are_checked():
    with pytest.raises(ValueError, match="seconds=0"):
        Limits(seconds=0)


@jailed
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_can_use_it_too(tmp_path):
    """Where the tests run as root, the way of ordinary users (a user namespace) is tried as well."""
    if not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("needs a Python that everybody can read")
    source = Path(jail.__file__).parents[2]
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from iha.evaluate.jail import *\n"
        f"print(run_programs([Program({RIGHT!r}, {TEST!r}, ('f',)), Program('import os; os.fork()', (), ())]))"
    )
    found = subprocess.run(
        ["/usr/bin/python3", "-c", script, str(source)],
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
    )
    if "SyntaxError" in found.stderr or "ModuleNotFoundError" in found.stderr or "Permission" in found.stderr:
        pytest.skip(f"the system's Python cannot import the project: {found.stderr[-200:]}")
    assert "Outcome(status='passed', detail='')" in found.stdout, found
    assert "Operation not permitted" in found.stdout, found
