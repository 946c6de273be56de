"""The system calls that a jailed program may not make, as a seccomp filter (classic BPF, see seccomp(2)).

No new process and no other program: with one process, the kernel's limits per process are limits of the whole program.
No socket of any kind, none of the memory that no limit counts (memfd, System V shared memory, message queues), no
window into other processes, no mounts, namespaces or asynchronous I/O. Threads are allowed and counted by RLIMIT_NPROC.
Refused calls fail with EPERM, as they would for lack of rights. clone3 fails with ENOSYS: its flags are behind a
pointer that a filter cannot read. The C library then falls back to clone, whose flags are in a register.
"""

import errno
import struct

CLONE_THREAD = 0x00010000

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_CALLS = 0x40000000  # x86-64's second table of the same calls begins here

# Name: number on x86-64, on aarch64 (None: that machine has no such call).
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "socket": (41, 198),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "personality": (135, 92),
}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, ...
_CALL_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; both machines little-endian
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000


def seccomp_filter(machine: str) -> bytes:
    """The filter for `platform.machine()`: an array of struct sock_filter. ValueError for machines not in the table."""
    if machine not in _AUDIT_ARCH:
        raise ValueError(f"the jail knows the system calls of {' and '.join(_AUDIT_ARCH)} only, this is {machine}")
    column = list(_AUDIT_ARCH).index(machine)
    refused = [number for numbers in _REFUSED.values() if (number := numbers[column]) is not None]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL),  # call convention of another machine (32-bit code): numbers mean other calls
        (_LOAD, 0, 0, _CALL_NUMBER),
        (_AT_LEAST, 0, 1, _X32_CALLS),
        (_RETURN, 0, 0, _KILL),
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
    ]
    for number in refused:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _FAIL | errno.EPERM)]
    steps += [
        (_EQUAL, 0, 3, _CLONE[machine]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),  # the lower half of clone's flags
        (_ANY_BIT, 1, 0, CLONE_THREAD),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *step) for step in steps)
