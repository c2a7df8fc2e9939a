"""Limits that the kernel keeps for each process, and the user that a server runs as."""

from __future__ import annotations

import os
import resource

from .kernel import drop_bounding_set, drop_capabilities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def set_limits(limits: Mapping[str, int | None], *, alone: bool) -> None:
    """Set the limits of this process and all it starts.

    ``alone``: nothing else runs as this user, as far as the kernel counts. Otherwise the processes
    that this user has now come on top. Memory is what can be written and is not shared: programs
    such as node reserve many times the address space that they use.
    """
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_NOFILE, limits["open_files"])
    _set(resource.RLIMIT_CPU, limits["cpu_seconds"])
    _set(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _set(resource.RLIMIT_DATA, limits["memory_bytes"])
    processes = limits["processes"]
    if processes is not None:
        _set(resource.RLIMIT_NPROC, processes + (0 if alone else _tasks_of(os.getuid())))


def become(uid: int) -> None:
    """Become a user that owns nothing but what was given to it."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def give_up_rights(uid: int | None) -> None:
    """Run as the user given, without any capability."""
    drop_bounding_set()
    if uid is not None:
        become(uid)
    drop_capabilities()


def _set(kind: int, value: int | None) -> None:
    """Lower a limit; one that is lower already stays."""
    if value is None:
        return
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _tasks_of(uid: int) -> int:
    """Return how many threads a user has: they count as its processes."""
    total = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid == uid:
                total += os.stat(f"/proc/{name}/task").st_nlink - 2
        except OSError:
            continue
    return total
