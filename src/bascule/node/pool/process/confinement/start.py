"""Starting a confined server: fork, be put in place by the warden, confine oneself, exec.

The child waits until the warden has put it into its cgroup and named its users, and says through
a pipe what went wrong; that pipe is closed by a successful exec.
"""

from __future__ import annotations

import json
import os
import select
import signal

from . import cgroups, child, kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .root import Plan

SETUP_LIMIT = 5.0  # seconds; it takes a few thousandths of one
_NAMESPACES = (
    kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
)  # fmt: skip


class Refused(OSError):
    """A step of the confinement that did not work; ``stage`` names it."""

    def __init__(self, number: int, text: str, stage: str) -> None:
        super().__init__(number, text)
        self.stage = stage


def start(order: dict[str, Any], files: Sequence[int]) -> tuple[int, list[str]]:
    """Start a server as its plan says; return its process and the folders of its cgroup."""
    plan: Plan = order["confine"]
    wanted = plan["limits"]
    plan["names_itself"] = None if os.geteuid() == 0 else (os.getuid(), os.getgid())
    folders = cgroups.make(order["mark"], wanted["memory_bytes"], wanted["processes"])
    report, tell = os.pipe2(os.O_CLOEXEC)
    wait, go = os.pipe2(os.O_CLOEXEC)
    pid = 0
    try:
        pid = _fork(plan)
        if pid == 0:
            os.close(go)
            child.run(order, (*files, tell, wait))
        os.close(tell)
        tell = -1
        if not cgroups.join(folders, pid):
            cgroups.remove(folders)
            folders = []
        _name_users(plan, pid)
        os.write(go, child.COUNTED if folders else child.UNCOUNTED)
        _hear(report)
    except OSError:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        cgroups.remove(folders)
        raise
    finally:
        for descriptor in (report, tell, wait, go):
            if descriptor >= 0:
                os.close(descriptor)
    return pid, folders


def _fork(plan: Plan) -> int:
    if plan["level"] != "namespaces":
        return os.fork()
    network = 0 if plan["network"] == "full" else kernel.CLONE_NEWNET
    try:
        return kernel.clone(_NAMESPACES | network | signal.SIGCHLD)
    except OSError as fault:
        raise Refused(fault.errno or 0, fault.strerror or "", "namespaces") from None


def _name_users(plan: Plan, pid: int) -> None:
    """Say who is who in a new user namespace, where that is ours to say: as root."""
    if plan["level"] == "namespaces" and os.geteuid() == 0:
        uid = plan["uid"]
        lines = "0 0 1\n" + (f"{uid} {uid} 1\n" if uid else "")
        for name in ("uid_map", "gid_map"):
            child.put(f"/proc/{pid}/{name}", lines)


def _hear(report: int) -> None:
    """Wait until the program runs, or raise with what the child says went wrong."""
    said = b""
    while True:
        if not select.select([report], [], [], SETUP_LIMIT)[0]:
            raise Refused(0, "the sandbox was not set up in time", "time")
        part = os.read(report, 65536)
        if not part:
            break
        said += part
    if said:
        number, text, stage = json.loads(said)
        raise Refused(number, text, stage)
