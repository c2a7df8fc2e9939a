"""What only the kernel can do for the warden: be the parent of orphans, and a PID namespace."""

from __future__ import annotations

import ctypes
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000
_MNT_DETACH = 2
_MS_NOSUID_NODEV_NOEXEC, _MS_REC, _MS_SLAVE = 2 | 4 | 8, 1 << 14, 1 << 19


def become_subreaper() -> bool:
    """Have orphaned descendants come to this process instead of to init."""
    return ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def isolate(control: int, ended: Callable[[int], None], *, user: bool) -> bool:
    """Become the first process of a PID namespace, with a /proc that shows it.

    The calling process stays behind as its parent and ends with it; only the first process of
    the namespace returns. When either is killed, the kernel ends everything in the namespace.
    The parent closes ``control``, and calls ``ended`` with the status when all have ended.
    """
    libc = ctypes.CDLL(None)
    ids = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWPID | _CLONE_NEWNS | (_CLONE_NEWUSER if user else 0)) != 0:
        return False
    if user and not _map_to_itself(*ids):
        return False
    if child := os.fork():
        os.close(control)  # the node must see the end of the child, not of this process
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        libc.umount2(b"/proc", _MNT_DETACH)  # the child's shows nothing of this process
        ended(status)
        os._exit(status & 0xFF)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    own_tree = libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None) == 0
    return own_tree and libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID_NODEV_NOEXEC, None) == 0


def _map_to_itself(uid: int, gid: int) -> bool:
    """Keep our own user and group inside a new user namespace; all others become nobody."""
    lines = ("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")
    try:
        for name, line in lines:
            descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(descriptor, line.encode())
            os.close(descriptor)
    except OSError:
        return False
    return True
