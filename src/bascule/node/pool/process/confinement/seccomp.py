"""The filter of system calls, as a BPF program.

A list of what is denied: a server is somebody's ordinary program, and what it needs is not known.
Denied are the calls that lead out of a sandbox or deep into the kernel. The first words check the
architecture, since numbers mean other calls in the 32-bit ways into the same kernel.
"""

from __future__ import annotations

import errno
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WORD = struct.Struct("HBBI")  # code, jump if true, jump if false, value
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW*, that of time included
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # typing into the terminal for somebody else

#: AUDIT_ARCH_*
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: The numbers of the calls: on x86_64, on aarch64.
_DENIED = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "ptrace": (101, 117), "unshare": (272, 97), "setns": (308, 268),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280),
    "pidfd_getfd": (438, 438), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "open_by_handle_at": (304, 265),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "quotactl": (179, 60), "syslog": (103, 116),
    "fanotify_init": (300, 262),
}  # fmt: skip
#: What programs do without when it is not there; what openat2 makes, a filter cannot see.
_ABSENT = {
    "openat2": (437, 437),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "clone3": (435, 435),
}  # fmt: skip
#: Memory that no limit of a process counts.
_UNCOUNTED = {"memfd_create": (319, 279), "memfd_secret": (447, 447)}
#: Limits and priorities, of any process of the same user: which argument says whose.
_OF_OTHERS = {
    "prlimit64": ((302, 261), 0), "sched_setaffinity": ((203, 122), 0),
    "sched_setscheduler": ((144, 119), 0), "sched_setparam": ((142, 118), 0),
    "sched_setattr": ((314, 274), 0), "setpriority": ((141, 140), 1), "ioprio_set": ((251, 30), 1),
}  # fmt: skip
#: Of the last two the first argument says what is meant: a process, which has these numbers.
_OF_A_PROCESS = (((141, 140), 0), ((251, 30), 1))
#: What gives a file a mode, and which argument that is.
_GIVES_MODE = {
    "chmod": ((90, None), 1), "fchmod": ((91, 52), 1), "fchmodat": ((268, 53), 2),
    "fchmodat2": ((452, 452), 2), "creat": ((85, None), 1), "mknod": ((133, None), 1),
    "mknodat": ((259, 33), 2),
}  # fmt: skip
#: What makes a file if its flags say so, and which argument those are; the mode comes next.
_MAKES_FILE = {"open": ((2, None), 1), "openat": ((257, 56), 2)}
_SET_ID = 0o6000  # whoever starts the file has its owner's rights, outside of any sandbox
_IF_MADE = 0o20000100  # O_CREAT, O_TMPFILE
_CLONE, _IOCTL, _SOCKET, _SHMGET = (56, 220), (16, 29), (41, 198), (29, 194)
_LARGEST_SHARED = 65_536  # bytes; the kernel has at most 4,096 of these


def program(
    machine: str,
    *,
    network: str,
    local_sockets: bool,
    own_network: bool,
    counted: bool,
    alone_as: int | None,
) -> bytes:
    """Return the filter for a machine.

    ``local_sockets``: whether sockets of AF_UNIX are allowed; pairs always are. ``own_network``:
    the server has a network namespace of its own, so asking the kernel about it tells nothing.
    ``counted``: a cgroup counts all of its memory. ``alone_as``: its process, where it shares the
    numbers of processes with others, whose limits and priorities it is not to change.
    """
    column = list(_ARCHITECTURES).index(machine)
    words = [*_check_architecture(machine)]
    for numbers in _ABSENT.values():
        words += _deny(numbers[column], errno.ENOSYS)
    for numbers in _DENIED.values():
        words += _deny(numbers[column], errno.EPERM)
    words += _on(_CLONE[column], _argument(0), [(_IF_ANY_BIT, _NEW_NAMESPACES)])
    words += _on(_IOCTL[column], _argument(1), [(_IF_EQUAL, _TIOCSTI), (_IF_EQUAL, _TIOCLINUX)])
    words += _sockets(_SOCKET[column], network, local=local_sockets, own_network=own_network)
    words += _modes(column)
    if not counted:
        for numbers in _UNCOUNTED.values():
            words += _deny(numbers[column], errno.ENOSYS)
        words += _on(_SHMGET[column], _argument(1), [(_IF_AT_LEAST, _LARGEST_SHARED + 1)])
        words += _on(_SHMGET[column], _argument(1, high=True), [(_IF_AT_LEAST, 1)])
    if alone_as is not None:
        for numbers, meant in _OF_A_PROCESS:
            words += _only(numbers[column], _argument(0), [meant])
        for numbers, at in _OF_OTHERS.values():
            words += _only(numbers[column], _argument(at), [0, alone_as])
    words.append(_word(_RETURN, _ALLOW))
    return b"".join(words)


def _check_architecture(machine: str) -> Iterable[bytes]:
    yield _word(_LOAD, _ARCHITECTURE_AT)
    yield _word(_IF_EQUAL, _ARCHITECTURES[machine], 1, 0)
    yield _fail(errno.ENOSYS)
    yield _word(_LOAD, _NUMBER_AT)
    if machine == "x86_64":
        yield _word(_IF_AT_LEAST, _X32, 0, 1)
        yield _fail(errno.ENOSYS)


def _deny(number: int, answer: int) -> list[bytes]:
    return [_word(_IF_EQUAL, number, 0, 1), _fail(answer)]


def _on(number: int, load: bytes, tests: Sequence[tuple[int, int]]) -> list[bytes]:
    """Deny one call when a test of an argument holds; the number is loaded again behind it."""
    body = [load]
    for code, value in tests:
        body += [_word(code, value, 0, 1), _fail(errno.EPERM)]
    body.append(_word(_LOAD, _NUMBER_AT))
    return [_word(_IF_EQUAL, number, 0, len(body)), *body]


def _sockets(number: int, network: str, *, local: bool, own_network: bool) -> list[bytes]:
    """Deny families of sockets: all but those allowed, or with the whole network only AF_UNIX."""
    if network == "full":
        return [] if local else _on(number, _argument(0), [(_IF_EQUAL, socket.AF_UNIX)])
    allowed = [int(socket.AF_UNIX)] if local else []
    if own_network:
        allowed.append(16)  # AF_NETLINK, which lists the interfaces: only the loopback there
    if network == "egress":
        allowed += [int(socket.AF_INET), int(socket.AF_INET6)]
    return _only(number, _argument(0), allowed)


def _modes(column: int) -> list[bytes]:
    """Deny files that give whoever starts them the rights of their owner."""
    words: list[bytes] = []
    for numbers, at in _GIVES_MODE.values():
        if (number := numbers[column]) is not None:
            words += _on(number, _argument(at), [(_IF_ANY_BIT, _SET_ID)])
    for numbers, at in _MAKES_FILE.values():
        if (number := numbers[column]) is not None:
            mode = [_argument(at + 1), _word(_IF_ANY_BIT, _SET_ID, 0, 1), _fail(errno.EPERM)]
            body = [_argument(at), _word(_IF_ANY_BIT, _IF_MADE, 0, len(mode)), *mode]
            body.append(_word(_LOAD, _NUMBER_AT))
            words += [_word(_IF_EQUAL, number, 0, len(body)), *body]
    return words


def _only(number: int, load: bytes, allowed: Sequence[int]) -> list[bytes]:
    """Deny one call unless an argument is one of these."""
    body = [load]
    for at, value in enumerate(allowed):
        body.append(_word(_IF_EQUAL, value, len(allowed) - at, 0))
    body += [_fail(errno.EPERM), _word(_LOAD, _NUMBER_AT)]
    return [_word(_IF_EQUAL, number, 0, len(body)), *body]


def _argument(at: int, *, high: bool = False) -> bytes:
    """Load half of an argument: these machines are little-endian."""
    return _word(_LOAD, _ARGUMENTS_AT + 8 * at + 4 * high)


def _fail(number: int) -> bytes:
    return _word(_RETURN, _ERRNO | number)


def _word(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return _WORD.pack(code, if_true, if_false, value)
