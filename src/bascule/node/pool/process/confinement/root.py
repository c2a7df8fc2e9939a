"""A root of its own: what a server may see, and nothing else, mounted on an empty file system."""

from __future__ import annotations

import os
import stat

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    Plan: TypeAlias = dict[str, Any]

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 -- made here, on an empty file system
_OLD = "/.old"
_READ_ONLY = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
_WRITABLE = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
_PLAIN = kernel.MS_NOSUID | kernel.MS_NODEV


def enter(plan: Plan) -> None:
    """Leave the machine's files behind. In a mount and a PID namespace of this process's own."""
    before = os.umask(0o22)
    base = next(path for path in ("/tmp", "/mnt", "/run", "/var") if os.path.isdir(path))  # noqa: S108
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", base, "tmpfs", _PLAIN, "mode=755,size=4m")
    os.mkdir(base + _OLD)
    kernel.pivot_root(base, base + _OLD)
    os.chdir("/")
    _add_temporary(plan)
    for path, writable in _grants(plan):
        _bind(path, writable=writable)
    for path, target in plan["links"]:
        _link(path, target)
    covers = [path for path in plan["hide"] if _hide(path)]
    for path in plan["own"]:  # what it has in a folder that is hidden as a whole
        _bind(path, writable=True)
    for path in covers:
        kernel.restrict_mount(path, _READ_ONLY, deep=False)
    _add_devices()
    _add_processes()
    kernel.unmount(_OLD)
    os.rmdir(_OLD)
    kernel.restrict_mount("/", _READ_ONLY, deep=False)
    os.umask(before)


def _grants(plan: Plan) -> list[tuple[str, bool]]:
    """Return the paths to bind, a folder before what lies in it, and the writable one last."""
    grants = [(path, False) for path in plan["read"]] + [(path, True) for path in plan["write"]]
    return sorted(grants, key=lambda grant: (grant[0].rstrip("/").count("/"), grant[1]))


def _bind(path: str, *, writable: bool) -> None:
    try:
        source = kernel.open_place(path, _OLD)
    except FileNotFoundError:
        return  # nothing there, nothing to grant
    try:
        _make_place(path, folder=stat.S_ISDIR(os.fstat(source).st_mode))
        link = f"{_OLD}/proc/self/fd/{source}"
        kernel.mount(link, path, None, kernel.MS_BIND | kernel.MS_REC)
    finally:
        os.close(source)
    kernel.restrict_mount(path, _WRITABLE if writable else _READ_ONLY, deep=True)


def _make_place(path: str, *, folder: bool) -> None:
    """Make what a mount needs to stand on, unless a bound folder has it already."""
    os.makedirs(path if folder else os.path.dirname(path), 0o755, exist_ok=True)
    if not folder and not os.path.lexists(path):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _link(path: str, target: str) -> None:
    if not os.path.lexists(path):
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        os.symlink(target, path)


def _hide(path: str) -> bool:
    """Cover what must not be seen although the folder around it is granted; say if it is there."""
    if not os.path.lexists(path):
        return False
    if os.path.isdir(path):
        kernel.mount("tmpfs", path, "tmpfs", _PLAIN | kernel.MS_NOEXEC, "mode=755,size=64k")
    else:
        kernel.mount(_OLD + "/dev/null", path, None, kernel.MS_BIND)
    return True


def _add_temporary(plan: Plan) -> None:
    """Add folders that everybody expects, empty and the server's own."""
    for path in TEMPORARY:
        os.makedirs(path, 0o755, exist_ok=True)
        kernel.mount("tmpfs", path, "tmpfs", _PLAIN, f"mode=1777,size={plan['temporary_bytes']}")
    os.mkdir("/run", 0o755)


def _add_devices() -> None:
    for name in DEVICES:
        if os.path.exists(f"{_OLD}/dev/{name}"):
            _make_place(f"/dev/{name}", folder=False)
            kernel.mount(f"{_OLD}/dev/{name}", f"/dev/{name}", None, kernel.MS_BIND)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"/dev/{name}")


def _add_processes() -> None:
    """Mount a /proc of this namespace; read-only, as root's files in it move the whole machine."""
    os.mkdir("/proc", 0o755)
    kernel.mount("proc", "/proc", "proc", _PLAIN | kernel.MS_NOEXEC | kernel.MS_RDONLY)
