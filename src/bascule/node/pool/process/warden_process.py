"""The warden: the process that starts a node's stdio servers and outlives none of them.

It spawns servers on the node's orders, adopts whatever they leave behind, reports exits, and
kills every descendant when the node is gone. Started by ``warden`` (mode ``none``, ``pid`` or
``user``: with or without a PID namespace) and by ``plain`` (mode ``watch``: it only watches).

Standard library only, and little of it: it runs without site packages, and starts in the time
an interpreter takes. The node's side imports the framing and the walk of /proc from here.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys
import time  # noqa: TID251 -- this process cannot import bascule.clock

from . import warden_namespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType
    from typing import Any, TypeAlias

    Message: TypeAlias = dict[str, Any]

MARKER = "BASCULE_SERVER"
CONTROL = 0  # the socket to the node stands where a server gets its own standard input
NO_NAMESPACE = 75  # exit status: this machine does not give the namespace asked for
CGROUPS_LEFT = 76  # exit status: the parent of the namespace is to remove the servers' cgroups
KILL_TIME = 0.4  # how long one server's tree is hunted before giving up
QUIET_WALKS = 2  # a walk can miss a process whose parent dies meanwhile; two in a row do not
LARGEST_FRAME = 16 << 20

_CREDENTIALS = struct.Struct("3i")
_LENGTH = struct.Struct(">I")
_CATCHABLE = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


# Framing: four bytes of length, then JSON. Both sides use it.


def pack(message: Mapping[str, object]) -> bytes:
    """Encode one message; strings that came from undecodable bytes survive."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Messages out of a stream that may be cut anywhere."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that ``data`` completes."""
        self._buffer += data
        messages: list[Message] = []
        while (end := self._end()) and len(self._buffer) >= end:
            messages.append(json.loads(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return messages

    def _end(self) -> int:
        """Return where the first message ends; 0 while its length is not known."""
        if len(self._buffer) < _LENGTH.size:
            return 0
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > LARGEST_FRAME:
            raise ValueError(f"a control message of {length} bytes")
        return _LENGTH.size + length


# Processes, as /proc shows them.


class Process:
    """What one line of /proc/PID/stat says."""

    __slots__ = ("group", "parent", "pid", "session", "state")

    def __init__(self, pid: int, stat: bytes) -> None:
        # The name stands in brackets and may itself contain brackets and spaces.
        fields = stat.rpartition(b") ")[2].split()
        self.pid = pid
        self.state = fields[0]
        self.parent, self.group, self.session = int(fields[1]), int(fields[2]), int(fields[3])

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie only waits to be reaped."""
        return self.state not in (b"Z", b"X")


def processes() -> dict[int, Process]:
    """Return every process that can be seen; none where there is no /proc."""
    found: dict[int, Process] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 -- pathlib costs start time here
    except OSError:
        return found
    for name in names:
        if name.isdigit() and (stat := _read(f"/proc/{name}/stat")):
            found[int(name)] = Process(int(name), stat)
    return found


def marks(pid: int) -> list[str]:
    """Return the servers a process descends from, outermost first, as its environment says."""
    prefix = MARKER.encode() + b"="
    for entry in _read(f"/proc/{pid}/environ").split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode("ascii", "replace").split("/")
    return []


def family(table: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Return the roots and all that descends from them."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting.extend(children.get(pid, ()))
    return found


def living(table: Mapping[int, Process], pids: Iterable[int]) -> set[int]:
    """Return those that still run."""
    return {pid for pid in pids if pid in table and table[pid].alive}


def strike(pids: Iterable[int], number: int) -> None:
    """Signal each process; those that are gone or not ours are passed over."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def marked(table: Mapping[int, Process], belongs: Callable[[list[str]], bool]) -> set[int]:
    """Return the living processes whose marks belong, with all that descends from them."""
    roots = [pid for pid, process in table.items() if process.alive and belongs(marks(pid))]
    return living(table, family(table, roots))


def _read(path: str) -> bytes:
    """Return a file of /proc, or nothing when its process is gone or not ours to read."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return b"".join(iter(lambda: os.read(descriptor, 65536), b""))
    except OSError:
        return b""
    finally:
        os.close(descriptor)


# Starting a program.


def failure(fault: OSError | ValueError) -> tuple[int, str]:
    """Return what the node needs to say why a program did not start."""
    told = isinstance(fault, OSError)
    return (fault.errno or 0, fault.strerror or "") if told else (0, str(fault))


def launch(order: Message, files: Sequence[int]) -> tuple[int, list[str]]:
    """Start a program in a session of its own, with three files and nothing else inherited.

    Return its process, and the folders of its cgroup where it is confined and could have one.
    """
    if "confine" in order:
        return _confinement().start(order, files)
    try:
        os.chdir(order["cwd"])
        pid = os.posix_spawn(
            order["program"],
            order["argv"],
            order["env"],
            file_actions=[(os.POSIX_SPAWN_DUP2, file, at) for at, file in enumerate(files)],
            setsid=True,
            setsigmask=(),
            setsigdef=_CATCHABLE,
        )
    finally:
        os.chdir("/")
    return pid, []


def _confinement() -> ModuleType:
    """Return what confines servers, loaded with the first that is confined."""
    from .confinement import start  # noqa: PLC0415 -- the warden knows no bascule

    return start


# The warden itself.


class Server:
    """One server: its process, the mark its descendants carry, and how far its end has come."""

    __slots__ = (
        "cgroup", "deadline", "ending", "exited", "key", "killing", "mark", "pid", "quiet",
    )  # fmt: skip

    def __init__(self, key: int, pid: int, mark: str, cgroup: list[str]) -> None:
        self.key = key
        self.pid = pid
        self.cgroup = cgroup
        self.mark = mark
        self.exited = False
        self.ending = False
        self.killing = False
        self.deadline = 0.0
        self.quiet = 0

    def kill(self, members: set[int]) -> None:
        """Kill its tree, and what its cgroup alone knows of."""
        strike(members, signal.SIGKILL)
        if self.cgroup:
            _confinement().cgroups.kill(self.cgroup)

    def leave_cgroup(self) -> None:
        """Remove the cgroup of a server that has ended."""
        if self.cgroup:
            _confinement().cgroups.remove(self.cgroup)

    def members(self, table: Mapping[int, Process], adopted: Iterable[Process]) -> set[int]:
        """Return its living tree: below its own process, left to the warden, in its cgroup."""
        roots = set[int]() if self.exited else {self.pid}
        if self.cgroup:  # it knows those, too, that shed their mark and session
            roots |= _confinement().cgroups.members(self.cgroup)
        for process in adopted:
            if self.pid in (process.group, process.session) or self.mark in marks(process.pid):
                roots.add(process.pid)
        return living(table, family(table, roots))


class Warden:
    """The loop: orders from the node, exits of servers, and servers on their way out."""

    def __init__(self, control: socket.socket, node: int | None, *, isolated: bool) -> None:
        self._control = control
        self._node = node
        self._isolated = isolated
        self._frames = Frames()
        self._files: list[int] = []
        self._servers: dict[int, Server] = {}
        self._closing = False
        self._wake, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noted)

    def run(self) -> None:
        """Serve until the node closes or is gone; then leave nothing behind."""
        try:
            self._tell({"event": "ready", "isolated": self._isolated})
            while self._turn():
                pass
        except ConnectionError:
            pass  # the node went away in the middle of a word
        if not self._isolated:  # a namespace ends with its first process, which is this one
            extinguish(2.0)
            for server in self._servers.values():
                server.leave_cgroup()
        elif any(server.cgroup for server in self._servers.values()):
            sys.exit(CGROUPS_LEFT)

    def _turn(self) -> bool:
        """Wait for something and deal with it; say whether to go on."""
        poll = select.poll()
        for descriptor in (self._control.fileno(), self._wake, self._node):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(self._patience())}
        if self._node in ready:
            return False
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._control.fileno() in ready and not self._listen():
            return False
        self._reap()
        self._advance()
        return not (self._closing and not self._servers)

    def _patience(self) -> float | None:
        """Return how many milliseconds to wait at most."""
        ending = [server for server in self._servers.values() if server.ending]
        if not ending:
            return None
        return 2 if any(server.killing or server.quiet for server in ending) else 20

    def _listen(self) -> bool:
        """Take orders and the files that come with them; say whether the node is there."""
        data, extra, flags, _ = self._control.recvmsg(
            65536, socket.CMSG_SPACE(64), socket.MSG_CMSG_CLOEXEC
        )
        if flags & socket.MSG_CTRUNC:  # files were lost: never give a server another's pipes
            raise ConnectionError("out of file descriptors")
        for level, kind, payload in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._files += struct.unpack(f"{len(payload) // 4}i", payload)
        for order in self._frames.feed(data):
            self._obey(order)
        return bool(data)

    def _obey(self, order: Message) -> None:
        """Carry out one order."""
        if order["op"] == "spawn":
            self._spawn(order)
        elif order["op"] == "end":
            self._end(order["server"], order["grace"])
        elif order["op"] == "close":
            self._closing = True
            for key in tuple(self._servers):
                self._end(key, order["grace"])

    def _spawn(self, order: Message) -> None:
        """Start a server on the next three files, and say how it went."""
        files, self._files = self._files[:3], self._files[3:]
        key: int = order["server"]
        try:
            pid, cgroup = launch(order, files)
        except (OSError, ValueError) as fault:
            stage = getattr(fault, "stage", "")
            self._tell({"event": "failed", "server": key, "fault": failure(fault), "stage": stage})
        else:
            self._servers[key] = Server(key, pid, order["mark"], cgroup)
            told = {"event": "started", "server": key, "pid": pid, "counted": bool(cgroup)}
            self._tell(told, about=pid)
        finally:
            for file in files:
                os.close(file)

    def _end(self, key: int, grace: float) -> None:
        """Ask a server's whole tree to stop; what is left after the grace is killed."""
        server = self._servers.get(key)
        if server is None:
            self._tell({"event": "ended", "server": key})
        elif not server.ending:
            server.ending = True
            server.deadline = time.monotonic() + grace
            table = processes()
            strike(server.members(table, self._adopted(table)), signal.SIGTERM)

    def _advance(self) -> None:
        """Move every ending server one step on."""
        ending = [server for server in self._servers.values() if server.ending]
        if not ending:
            return
        table = processes()
        adopted = self._adopted(table)
        for server in ending:
            if self._gone(server, server.members(table, adopted)):
                self._forget(server)

    def _gone(self, server: Server, members: set[int]) -> bool:
        """Press on with one server's end; say whether it is over."""
        now = time.monotonic()
        server.quiet = 0 if members else server.quiet + 1
        late = now >= server.deadline
        if server.killing and late:
            return True
        if late:
            server.killing = True
            server.deadline = now + KILL_TIME
        if server.killing:
            server.kill(members)
        return server.quiet >= QUIET_WALKS

    def _forget(self, server: Server) -> None:
        """Report the end; with the last server go those that belong to nobody we know."""
        self._reap()
        del self._servers[server.key]
        if not self._servers:
            extinguish(0.2)
        server.leave_cgroup()
        self._tell({"event": "ended", "server": server.key})

    def _adopted(self, table: Mapping[int, Process]) -> list[Process]:
        """Return the warden's children that it did not start: orphans of its servers."""
        started = {server.pid for server in self._servers.values() if not server.exited}
        own = os.getpid()
        return [each for each in table.values() if each.parent == own and each.pid not in started]

    def _reap(self) -> None:
        """Take every exit status there is, and report those of servers."""
        started = {server.pid: server for server in self._servers.values() if not server.exited}
        for pid, status in reaped():
            if server := started.get(pid):
                server.exited = True
                self._tell({"event": "exit", "server": server.key, "status": status})

    def _tell(self, message: Message, about: int | None = None) -> None:
        """Send an event. In a namespace the kernel translates the pid it is about."""
        extra: list[tuple[int, int, bytes]] = []
        if about is not None and self._isolated:
            who = _CREDENTIALS.pack(about, os.getuid(), os.getgid())
            extra.append((socket.SOL_SOCKET, socket.SCM_CREDENTIALS, who))
        frame = pack(message)
        sent = self._control.sendmsg([frame], extra)
        self._control.sendall(frame[sent:])


def _noted(_number: int, _frame: object) -> None:
    """Let a signal through to the wake-up pipe."""


def reaped() -> list[tuple[int, int]]:
    """Reap every child that has ended. Only for a process whose children are all its own."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, os.waitstatus_to_exitcode(status)))


def extinguish(limit: float) -> None:
    """Kill every descendant, again and again, until two walks in a row find none."""
    until = time.monotonic() + limit
    own = os.getpid()
    quiet = 0
    while quiet < QUIET_WALKS and time.monotonic() < until:
        table = processes()
        found = living(table, family(table, [own]) - {own})
        strike(found, signal.SIGKILL)
        quiet = 0 if found else quiet + 1
        reaped()
        if found:
            time.sleep(0.001)


_PR_SET_DUMPABLE = 4


def _guard(mode: str, owner: str) -> None:
    """Run as the warden of the node that started this process."""
    os.chdir("/")
    try:
        node = os.pidfd_open(os.getppid())  # a forked copy of the node may hold the socket open
    except OSError:
        node = None

    def ended(status: int) -> None:
        if status:  # the warden could not clear away what is left of its servers
            _confinement().cgroups.remove_all(owner)

    if not (
        warden_namespace.become_subreaper()
        if mode == "none"
        else warden_namespace.isolate(CONTROL, ended, user=mode == "user")
    ):
        sys.exit(NO_NAMESPACE)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # it is told what servers are given
    Warden(socket.socket(fileno=CONTROL), node, isolated=mode != "none").run()


def _watch(owner: str) -> None:
    """Note process groups from standard input; kill them all when it closes."""
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        (groups.add if line.startswith("+") else groups.discard)(group)
    strike((-group for group in groups), signal.SIGKILL)
    for _ in range(100):
        found = marked(processes(), lambda path: any(mark.startswith(owner) for mark in path))
        if not found:
            return
        strike(found, signal.SIGKILL)
        time.sleep(0.002)


def main() -> None:
    """Start in the mode that the command line gives, for the spawner whose marks it names."""
    mode, owner = sys.argv[2:4]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the node ends this process
    if mode == "watch":
        _watch(owner)
    else:
        _guard(mode, owner)
