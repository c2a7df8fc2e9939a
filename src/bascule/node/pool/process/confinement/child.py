"""The child's side of a confined start: from the fork to the exec of the server's program."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import struct

from . import bubblewrap, kernel, landlock, limits, root, seccomp, shim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, NoReturn

    from .root import Plan

_STANDARD, _TELL, _WAIT = 3, 3, 4  # standard files below the first; then the pipes of the warden
#: What the warden says when the child may go on.
COUNTED, UNCOUNTED = b"c", b"u"
_CATCHABLE = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
#: What of /proc tells of the machine and not of other processes.
_COMMON_PROC = (
    "cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "self",
    "thread-self", "sys/vm/overcommit_memory", "sys/kernel/osrelease",
)  # fmt: skip
_COUNTS_BY_NAMESPACE = (5, 14)  # Linux: since then processes are counted for each user namespace
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_INTERFACE = struct.Struct("16sH14x")


class _Progress:
    """Which step the child is at, for the report of one that fails."""

    stage = "start"


def run(order: dict[str, Any], files: Sequence[int]) -> NoReturn:
    """Become the server, or tell the warden why not.

    ``files`` are the server's three, the pipe to tell the warden and the one to wait for it.
    """
    progress = _Progress()
    tell = files[_TELL]
    try:
        _take(files)
        tell = _TELL
        _become(order, progress)
    except BaseException as fault:  # noqa: BLE001 -- whatever it was, this process ends here
        os.write(tell, json.dumps([*_told(fault), progress.stage]).encode())
    finally:
        os._exit(127)


def put(path: str, text: str) -> None:
    """Write a file of the kernel's."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _told(fault: BaseException) -> tuple[int, str]:
    if not isinstance(fault, OSError):
        return 0, repr(fault)
    text = fault.strerror or str(fault)
    return fault.errno or 0, f"{text}: {os.fsdecode(fault.filename)}" if fault.filename else text


def _take(files: Sequence[int]) -> None:
    """Have these files from 0 on, and no other."""
    clear = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, len(files)) for each in files]
    for at, each in enumerate(clear):
        os.dup2(each, at, inheritable=at < _STANDARD)
    os.closerange(len(files), 1 << 20)


def _become(order: dict[str, Any], progress: _Progress) -> None:
    plan: Plan = order["confine"]
    os.setsid()
    plan["counted"] = _admitted(os.read(_WAIT, 1))
    os.close(_WAIT)
    kernel.die_with_parent(signal.SIGKILL)
    if plan["level"] == "namespaces":
        _settle(plan, progress)
    _confine(plan, order["cwd"], progress)
    program, argv = order["program"], order["argv"]
    if plan["level"] == "bwrap":
        progress.stage = "exec"
        _check_program(program)
        argv = bubblewrap.command(plan, order["cwd"], [program, *argv[1:]], _filter_file(plan))
        program = plan["bwrap"]
    progress.stage = "filter"
    signal.set_wakeup_fd(-1)
    for number in _CATCHABLE:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if plan["level"] in ("landlock", "namespaces"):
        kernel.filter_calls(_filter(plan))
    if plan["level"] == "namespaces" and plan["egress"]:
        progress.stage = "egress"
        shim.fork_off(plan["egress"])
    progress.stage = "exec"
    os.execve(program, argv, order["env"])  # noqa: S606 -- the record's command, no shell


def _admitted(word: bytes) -> bool:
    """Say whether the warden has put this process into a cgroup that counts its memory."""
    if word not in (COUNTED, UNCOUNTED):
        raise OSError(errno.ECANCELED, "the warden gave the start up")
    return word == COUNTED


def _check_program(program: str) -> None:
    """Raise now what an exec of the program would: afterwards it is bubblewrap that fails."""
    os.stat(program)
    if not os.access(program, os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _settle(plan: Plan, progress: _Progress) -> None:
    """Make the new namespaces a place to live in; only the server's own process returns."""
    progress.stage = "users"
    if plan["names_itself"]:
        _name_oneself(*plan["names_itself"])
    progress.stage = "root"
    root.enter(plan)
    if plan["network"] != "full":
        _raise_loopback()
    progress.stage = "first process"
    if server := os.fork():
        _tend(plan, server)
    os.setsid()
    kernel.die_with_parent(signal.SIGKILL)


def _name_oneself(uid: int, gid: int) -> None:
    """Keep our own user in the new namespace; the files for it are closed to the undumpable."""
    kernel.set_dumpable(on=True)
    put("/proc/self/setgroups", "deny")
    put("/proc/self/uid_map", f"{uid} {uid} 1")
    put("/proc/self/gid_map", f"{gid} {gid} 1")
    kernel.set_dumpable(on=False)


def _raise_loopback() -> None:
    """Have 127.0.0.1 inside: it leads nowhere else."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = _INTERFACE.pack(b"lo", 0)
        flags = _INTERFACE.unpack(fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, _INTERFACE.pack(b"lo", flags | _IFF_UP))


def _tend(plan: Plan, server: int) -> NoReturn:
    """Be the first process of the namespace: reap, and end with the server, and all with it."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(0, _WAIT)
    limits.give_up_rights(plan["uid"])
    kernel.gain_no_privileges()
    kernel.die_with_parent(signal.SIGKILL)
    while True:
        pid, status = os.wait()
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _confine(plan: Plan, cwd: str, progress: _Progress) -> None:
    progress.stage = "cwd"
    os.chdir(cwd)
    progress.stage = "limits"
    limits.set_limits(plan["limits"], alone=_alone(plan))
    kernel.gain_no_privileges()
    progress.stage = "landlock"
    if plan["level"] in ("landlock", "namespaces"):
        _lock(plan)
    elif plan["level"] == "bwrap":
        _lock_scope(plan)
    progress.stage = "uid"
    if plan["uid"] is not None or plan["level"] != "bwrap":  # as root, that drops them itself
        limits.give_up_rights(plan["uid"])
    kernel.die_with_parent(signal.SIGKILL)  # a change of user forgets it
    if plan["uid"] is not None:
        _check_access(plan)


def _alone(plan: Plan) -> bool:
    release = os.uname().release.split("-")[0].split(".")
    counts = tuple(map(int, release[:2])) >= _COUNTS_BY_NAMESPACE
    return plan["uid"] is not None or (plan["level"] == "namespaces" and counts)


def _lock(plan: Plan) -> None:
    write = [*plan["write"], *plan["own"]]
    devices = [f"/dev/{name}" for name in root.DEVICES]
    if plan["level"] == "landlock":
        network = plan["network"]
        landlock.restrict(plan["read"], write, devices, network=network, own_proc=_own_proc())
    elif _has_landlock():  # in its root is nothing that must be kept from it
        write += root.TEMPORARY
        landlock.restrict(["/"], write, devices, network=plan["network"])


def _own_proc() -> Iterator[str]:
    for name in _COMMON_PROC:
        yield f"/proc/{name}"


def _has_landlock() -> bool:
    try:
        return landlock.version() > 0
    except OSError:
        return False


def _lock_scope(plan: Plan) -> None:
    if _has_landlock():
        landlock.restrict_scope(network=plan["network"])


def _check_access(plan: Plan) -> None:
    """Try, as the user that the server will be, all that it was granted."""
    for path, mode in _wanted(plan):
        if not os.access(path, mode):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _wanted(plan: Plan) -> Iterator[tuple[str, int]]:
    for path in plan["check_read"]:
        yield path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)
    for path in (*plan["write"], *plan["own"]):
        yield path, os.R_OK | os.W_OK | (os.X_OK if os.path.isdir(path) else 0)


def _filter(plan: Plan) -> bytes:
    own = plan["level"] in ("namespaces", "bwrap")
    local = own or (_has_landlock() and landlock.version() >= landlock.UNIX_PATHS_SINCE)
    return seccomp.program(
        kernel.MACHINE,
        network=plan["network"],
        local_sockets=local,
        own_network=own and plan["network"] != "full",
        counted=plan["counted"],
        alone_as=None if own else os.getpid(),
    )


def _filter_file(plan: Plan) -> int:
    """Return the filter as a file that the next program inherits."""
    file = os.memfd_create("filter", 0)
    os.write(file, _filter(plan))
    os.lseek(file, 0, os.SEEK_SET)
    return file
