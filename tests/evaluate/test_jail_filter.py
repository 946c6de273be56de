"""The filter, run by a small interpreter of classic BPF over system calls."""

import errno
import re
import struct
from pathlib import Path

import pytest

from iha.evaluate import jail_filter
from iha.evaluate.jail_filter import CLONE_THREAD, seccomp_filter

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = list(ARCHITECTURE)


def decision(filter_bytes: bytes, call: int, architecture: int, first_argument: int = 0) -> int:
    """What the kernel would decide (seccomp(2), struct seccomp_data)."""
    data = struct.pack("<IIQ6Q", call, architecture, 0, first_argument, *[0] * 5)
    steps = [struct.unpack_from("<HBBI", filter_bytes, 8 * i) for i in range(len(filter_bytes) // 8)]
    at, accumulator = 0, 0
    while True:
        code, yes, no, k = steps[at]
        at += 1
        if code == 0x06:  # BPF_RET
            return k
        if code == 0x20:  # BPF_LD, absolute, a word
            (accumulator,) = struct.unpack_from("<I", data, k)
            continue
        holds = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[code]
        at += yes if holds else no


@pytest.mark.parametrize("machine", MACHINES)
def test_refused_calls_fail_and_all_others_are_allowed(machine):
    column = MACHINES.index(machine)
    refused = {numbers[column] for numbers in jail_filter._REFUSED.values()} - {None}
    program, architecture = seccomp_filter(machine), ARCHITECTURE[machine]
    for call in range(600):
        if call in (435, {"x86_64": 56, "aarch64": 220}[machine]):  # clone3, clone: below
            continue
        assert decision(program, call, architecture) == (EPERM if call in refused else ALLOW), call


@pytest.mark.parametrize("machine", MACHINES)
def test_clone_makes_threads_and_nothing_else(machine):
    program, architecture = seccomp_filter(machine), ARCHITECTURE[machine]
    clone = {"x86_64": 56, "aarch64": 220}[machine]
    assert decision(program, clone, architecture, CLONE_THREAD | 0x100) == ALLOW
    assert decision(program, clone, architecture, 17) == EPERM  # SIGCHLD: a process
    assert decision(program, clone, architecture, CLONE_THREAD << 32) == EPERM  # the upper half does not count
    assert decision(program, 435, architecture) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_another_call_convention_is_the_end(machine):
    program = seccomp_filter(machine)
    assert decision(program, 1, 0x40000003) == KILL  # 32-bit x86: number 1 is another call there
    assert decision(program, 0x40000000 + 39, ARCHITECTURE[machine]) == KILL  # x32's getpid


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_the_kernel_s(machine):
    """The C library's headers say which number each name has; what they do not know yet is left out."""
    if not HEADERS[machine].is_file():
        pytest.skip(f"no {HEADERS[machine]} here")
    text = HEADERS[machine].read_text()
    numbers = {name: int(n) for name, n in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text)}
    assert numbers["clone"] == {"x86_64": 56, "aarch64": 220}[machine]
    column, compared = MACHINES.index(machine), 0
    for name, ours in jail_filter._REFUSED.items():
        if name in numbers:
            assert ours[column] == numbers[name], name
            compared += 1
    assert compared > 25  # of 39


def test_unknown_machines_are_refused():
    with pytest.raises(ValueError, match="riscv64"):
        seccomp_filter("riscv64")
