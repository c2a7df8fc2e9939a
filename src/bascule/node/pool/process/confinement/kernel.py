"""Calls to the kernel that Python has no names for."""

from __future__ import annotations

import contextlib
import ctypes
import os

_LIBC = ctypes.PyDLL(None, use_errno=True)  # the lock is kept: these calls do not wait
_LIBC.syscall.restype = ctypes.c_long

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

#: By machine: what differs between them.
_NUMBERS = {
    "x86_64": {"clone": 56, "pivot_root": 155, "capset": 126},
    "aarch64": {"clone": 220, "pivot_root": 41, "capset": 91},
}
_OPENAT2, _MOUNT_SETATTR = 437, 442
_RESOLVE_NO_SYMLINKS = 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

MACHINE = os.uname().machine
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
MNT_DETACH = 2
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000


def syscall(number: int, *arguments: object) -> int:
    """Make a system call; raise ``OSError`` with what the kernel answered."""
    passed = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _checked(_LIBC.syscall(ctypes.c_long(number), *passed))


def number_of(name: str) -> int:
    """Return the number of a call on this machine."""
    try:
        return _NUMBERS[MACHINE][name]
    except KeyError:
        raise OSError(38, f"no number of {name} is known for {MACHINE}") from None


def prctl(option: int, *arguments: object) -> int:
    """Change a setting of this process."""
    passed = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    passed += [ctypes.c_ulong(0)] * (4 - len(passed))
    return _checked(_LIBC.prctl(option, *passed))


def die_with_parent(number: int) -> None:
    """Have this process killed when its parent ends."""
    prctl(_PR_SET_PDEATHSIG, number)


def set_dumpable(*, on: bool) -> None:
    """Say whether others of this user may look into this process."""
    prctl(_PR_SET_DUMPABLE, int(on))


def gain_no_privileges() -> None:
    """Have no program that is started from here on bring rights with it."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def filter_calls(program: bytes) -> None:
    """Have a BPF program decide about each system call from here on."""
    code = ctypes.create_string_buffer(program, len(program))

    class Header(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    header = Header(len(program) // 8, ctypes.addressof(code))
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(header))


def drop_bounding_set() -> None:
    """Have no program that is started from here on gain a capability, as far as we may say so."""
    for each in range(_LAST_CAPABILITY + 1):
        try:
            prctl(_PR_CAPBSET_DROP, each)
        except OSError:  # past the last one the kernel knows, or not ours to drop
            break


def drop_capabilities() -> None:
    """Give up every capability."""
    with contextlib.suppress(OSError):  # older than ambient capabilities
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    syscall(number_of("capset"), ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def open_place(path: str, below: str = "/") -> int:
    """Open a file or folder, to be mounted or granted; a link on the way is refused.

    Paths were resolved before they were granted: a link that stands there now was put there since.
    """
    base = os.open(below, os.O_PATH | os.O_CLOEXEC)
    try:
        how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)
        name = ctypes.c_char_p(os.fsencode(path.lstrip("/") or "."))
        return syscall(_OPENAT2, base, name, ctypes.byref(how), 24)
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, path) from None
    finally:
        os.close(base)


def clone(flags: int) -> int:
    """Fork into new namespaces. Only for a process with a single thread."""
    return syscall(number_of("clone"), flags, 0, 0, 0, 0)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount something."""
    _named(
        target,
        _LIBC.mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() if kind else None,
            ctypes.c_ulong(flags),
            data.encode() if data else None,
        ),
    )


def unmount(target: str) -> None:
    """Take a mount with all below it out of sight."""
    _named(target, _LIBC.umount2(os.fsencode(target), MNT_DETACH))


def restrict_mount(target: str, attributes: int, *, deep: bool) -> None:
    """Add attributes to a mount, or to it and all below it (Linux 5.12)."""
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if deep else 0
    path = ctypes.c_char_p(os.fsencode(target))
    syscall(_MOUNT_SETATTR, _AT_FDCWD, path, flags, ctypes.byref(wanted), 32)


def pivot_root(new: str, old: str) -> None:
    """Make ``new`` the root, and put the one before at ``old``."""
    paths = [ctypes.c_char_p(os.fsencode(path)) for path in (new, old)]
    syscall(number_of("pivot_root"), *paths)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _named(path: str, result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
