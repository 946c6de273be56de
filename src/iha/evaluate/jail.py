"""A jail for programs that a model wrote: bubblewrap around one process, judged by another that it cannot reach.

Contained, also against programs that try:

- *Network*: an empty network namespace, and no socket can be made.
- *Files*: only the standard library and the C libraries are there, read-only; no home, no /etc, no /proc, no other
  package. The one place to write is the scratch directory, in memory, of limited size, gone with the jail.
- *Environment*: empty. The program runs as an unprivileged user without capabilities, also when root starts the jail.
- *Processes*: one. fork and exec are refused by a seccomp filter (jail_filter.py), threads are counted. So the limits
  on memory, CPU time, file size and open files, which the kernel keeps per process, are limits of the whole program.
- *Time*: wall-clock time is measured outside. At the limit the PID namespace is killed, and with it every process
  inside, whatever signals it ignores.
- *Output*: goes to /dev/null. What a program prints is no evidence of anything.
- *The verdict*: tests run in the checker (jail_inside.py), a process that the program can neither read nor trace; they
  are not in the program's memory, files or arguments. The program's functions are called from there over a pipe that
  carries plain values only. To pass, a program has to answer every call with a value that Python's own == accepts:
  there is no marker to print, no exit status to fake, no checker to patch and no expected answer to read.

Not contained:

- *The kernel.* A program that breaks Linux through the allowed system calls is out. Use a virtual machine against that.
- *Processor and memory up to the limits*, times the number of workers: each jail may use `memory_bytes` twice (program
  and checker) and the scratch size. Empty files cost the kernel about 1 kB each that no limit counts; the CPU time
  bounds their number (about a million in ten seconds).
- *The tests.* They are the dataset's code; they run in the same namespaces, but not under the filter.
- *Before Linux 5.14* threads are counted over all processes of the user, so a program may not get any.

How tests see the program: arguments and answers are copies, so a test cannot see that a program changed its argument in
place; subclasses arrive as their base class (a Counter as a dict); any other object equals only itself. No test of
HumanEval or MBPP depends on these.
"""

import functools
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from iha.evaluate.jail_filter import seccomp_filter
from iha.records import Progress, silent

SCRATCH = "/scratch"


@dataclass(frozen=True)
class Limits:
    """Limits of one program. MBPP's slowest reference solution (task 123) takes about 5 s of CPU time.

    The wall-clock limit is for programs that wait. It is generous, so a busy machine does not fail correct programs.
    """

    seconds: float = 60.0  # start of the jail included
    cpu_seconds: int = 10
    memory_bytes: int = 1 << 30  # of address space
    scratch_bytes: int = 64 << 20
    file_bytes: int = 16 << 20
    open_files: int = 64
    threads: int = 32
    message_bytes: int = 16 << 20  # of one answer

    def __post_init__(self) -> None:
        if any(value <= 0 for value in asdict(self).values()):
            raise ValueError(f"limits must be positive: {self}")


@dataclass(frozen=True)
class Program:
    """A model's code and the tests that decide on it."""

    code: str
    tests: tuple[str, ...]  # pieces of Python, run in this order in one namespace
    names: tuple[str, ...]  # names of the program that the tests use; they see no others
    setup: str = ""  # run before the tests: imports, helpers of the benchmark's own


@dataclass(frozen=True)
class Outcome:
    """How a program ended."""

    status: str  # passed | wrong (an assertion failed) | error | exited (before the tests did) | timeout | killed
    detail: str = ""

    @property
    def passed(self) -> bool:
        return self.status == "passed"


class JailUnavailableError(ValueError):
    """Programs cannot be run safely on this machine; the message says what is missing."""


def run_programs(
    programs: Sequence[Program],
    limits: Limits | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> list[Outcome]:
    """One outcome per program, in order. Raises JailUnavailableError before the first one when no jail is available."""
    check_jail()
    workers = workers or os.cpu_count() or 1
    with ThreadPoolExecutor(max_workers=workers) as pool, progress.task("running programs", len(programs)) as task:

        def run(program: Program) -> Outcome:
            outcome = run_program(program, limits or Limits())
            task.advance()
            return outcome

        return list(pool.map(run, programs))


def run_program(program: Program, limits: Limits) -> Outcome:
    """Run one program in a separate jail; `check_jail` has been called before."""
    uid = next(_uids) if os.geteuid() == 0 else None
    order = {"limits": asdict(limits), "uid": uid, "filter": _filter().hex(), "code": program.code}
    checks = {"names": program.names, "setup": program.setup, "tests": program.tests}
    jail = subprocess.Popen(
        [*_walls(uid is not None), *_scratch(limits.scratch_bytes), *_interpreter()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = jail.communicate(_message(order) + _message(checks), timeout=limits.seconds)
    except subprocess.TimeoutExpired:
        return Outcome("timeout", f"after {limits.seconds:g} s")
    finally:
        jail.kill()  # bubblewrap dies with its namespace: --die-with-parent
        jail.communicate()
    if not out:
        return Outcome("killed", err.decode(errors="replace").strip()[-300:] or f"exit status {jail.returncode}")
    status, detail = json.loads(out[8:])
    return Outcome(status, re.sub(r"\b0x[0-9a-f]{6,}\b", "0x...", detail))  # addresses differ from run to run


@functools.cache
def check_jail() -> None:
    """Test the jail with a program that tries to escape. JailUnavailableError if there is no jail, or if it leaks."""
    if sys.platform != "linux":
        raise JailUnavailableError(
            f"the jail needs Linux, this is {sys.platform}: evaluate code tasks in a Linux machine"
        )
    try:
        _filter()
    except ValueError as error:
        raise JailUnavailableError(str(error)) from None
    if shutil.which("bwrap") is None:
        raise JailUnavailableError(
            "generated code runs in bubblewrap only, and bwrap is not installed: apt install bubblewrap, "
            "dnf install bubblewrap, or conda install -c conda-forge bubblewrap"
        )
    with tempfile.NamedTemporaryFile() as file:
        test = f"found = broken({file.name!r})\nassert found == [], found"
        outcome = run_program(Program(_PROBE, (test,), ("broken",)), Limits(seconds=60))
    if not outcome.passed:
        raise JailUnavailableError(f"bubblewrap is installed, but makes no jail here ({outcome.detail}). {_advice()}")


_PROBE = f"""
import os, socket
def broken(file):
    attempts = {{
        "it can fork": os.fork,
        "it can make sockets": socket.socket,
        "it can write outside of its scratch directory": lambda: open("/probe", "w"),
        "it can read other files": lambda: open(file),
        "it can read the password file": lambda: open("/etc/passwd"),
    }}
    found = []
    for wall, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        found.append(wall)
    open("{SCRATCH}/probe", "w").close()
    return found + (["it is root"] if os.getuid() == 0 else [])
"""


def _advice() -> str:
    """Why this machine may forbid namespaces, and what to do about it."""

    def setting(name: str) -> str:
        file = Path("/proc/sys", name)
        return file.read_text().strip() if file.exists() else ""

    if setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor forbids user namespaces (Ubuntu 23.10 and later). Install the package apparmor-profiles and "
            "link /usr/share/apparmor/extra-profiles/bwrap-userns-restrict into /etc/apparmor.d, run "
            "apparmor_parser -r on it; or, for all programs, sysctl kernel.apparmor_restrict_unprivileged_userns=0."
        )
    if setting("kernel/unprivileged_userns_clone") == "0":
        return "User namespaces are switched off: sysctl kernel.unprivileged_userns_clone=1."
    if setting("user/max_user_namespaces") == "0":
        return "User namespaces are switched off: sysctl user.max_user_namespaces=10000."
    if any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv", "/run/systemd/container"))):
        return (
            "This is a container without the right to make namespaces. Start it with --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --cap-add SYS_ADMIN, or score the saved samples on another machine."
        )
    return "bwrap needs user namespaces, tmpfs --size (version 0.7) and read access to this Python's installation."


# When root starts the jail, every program gets its own user id: RLIMIT_NPROC does not bind root and counts per user.
_uids = itertools.count(2_000_000_000 + os.getpid() * 64)


@functools.cache
def _filter() -> bytes:
    return seccomp_filter(platform.machine())


@functools.cache
def _walls(root: bool) -> tuple[str, ...]:
    """bubblewrap's arguments that do not depend on the program."""
    arguments = ["bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    arguments += ["--die-with-parent", "--new-session", "--hostname", "jail", "--clearenv", "--cap-drop", "ALL"]
    # The same sets and dicts in every run: verdicts must not depend on the order of a set.
    arguments += ["--setenv", "PYTHONHASHSEED", "0"]
    if root:  # the checker needs these two to change its user; it drops them by doing so
        arguments += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        arguments += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    # Directories that bwrap makes along the way are closed to all but root.
    for directory in ("/usr/local", "/etc", "/dev", sys.base_prefix, os.path.dirname(_python())):
        arguments += ["--dir", directory]
    for directory in ("/lib", "/lib32", "/lib64"):
        if os.path.islink(directory):
            arguments += ["--symlink", os.readlink(directory), directory]
        elif os.path.isdir(directory):
            arguments += ["--ro-bind", directory, directory]
    for path in ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"):
        arguments += ["--ro-bind-try", path, path]
    if not sys.base_prefix.startswith("/usr"):
        for path in (f"{sys.base_prefix}/lib", f"{sys.base_prefix}/lib64"):
            arguments += ["--ro-bind-try", path, path]
    arguments += ["--ro-bind", _python(), _python()]
    for device in ("/dev/null", "/dev/urandom"):
        arguments += ["--dev-bind", device, device]
    return tuple(arguments)


def _scratch(size: int) -> list[str]:
    """The one writable directory. These arguments must come after all other mounts."""
    return ["--perms", "0777", "--size", str(size), "--tmpfs", SCRATCH, "--remount-ro", "/", "--chdir", SCRATCH]


def _python() -> str:
    """The interpreter itself, not a virtual environment's link to it: environments are not mounted in the jail."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


@functools.cache
def _interpreter() -> tuple[str, ...]:
    """No site-packages, no user's packages, no bytecode files, nothing of the current directory."""
    return _python(), "-S", "-s", "-P", "-B", "-c", Path(__file__).with_name("jail_inside.py").read_text()


def _message(content: object) -> bytes:
    body = json.dumps(content).encode()
    return b"%08x" % len(body) + body
