"""The way out of a network of one's own: a port on the loopback that leads to a socket in a file.

A server speaks to ``http://127.0.0.1:3128`` as to any proxy; behind the socket the node's own
proxy decides. Forked off where the sandbox is made by the warden; where another program makes it,
started in it: ``python -I -S shim.py SOCKET PROGRAM ARGUMENTS…`` becomes the program.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

PORT = 3128
_CHUNK = 65536
_MOST_WAITING = 4 * _CHUNK  # bytes that are read ahead of a slow reader


class _End:
    """One end of a connection, and what waits to be written to it."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.waiting = bytearray()
        self.finished = False  # its peer says no more: when all is written, neither do we
        self.silent = False  # it says no more itself
        self.peer = self


class Shim:
    """Passes bytes between connections to the port and connections to the socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ends: dict[int, _End] = {}
        self._port = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("127.0.0.1", PORT))
        self._port.listen(64)
        self._port.settimeout(0)

    @property
    def port(self) -> int:
        """The descriptor that connections come to; it is not inherited by programs."""
        return self._port.fileno()

    def serve(self) -> None:
        """Pass bytes until this process is ended."""
        while True:
            self._turn()

    def _turn(self) -> None:
        poll = select.poll()
        poll.register(self._port, select.POLLIN)
        for descriptor, end in self._ends.items():
            reads = not end.silent and len(end.peer.waiting) < _MOST_WAITING
            wanted = (select.POLLIN if reads else 0) | (select.POLLOUT if end.waiting else 0)
            poll.register(descriptor, wanted)
        for descriptor, events in poll.poll():
            if descriptor == self._port.fileno():
                self._accept()
            elif end := self._ends.get(descriptor):
                self._serve(end, events)

    def _accept(self) -> None:
        try:
            inside = self._port.accept()[0]
        except OSError:
            return
        outside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            outside.connect(self._path)
        except OSError:
            inside.close()
            outside.close()
            return
        one, other = _End(inside), _End(outside)
        one.peer, other.peer = other, one
        for end in (one, other):
            end.link.settimeout(0)
            self._ends[end.link.fileno()] = end

    def _serve(self, end: _End, events: int) -> None:
        try:
            if events & (select.POLLERR | select.POLLNVAL):
                raise ConnectionError
            if events & select.POLLOUT:
                del end.waiting[: end.link.send(end.waiting)]
            if events & (select.POLLIN | select.POLLHUP) and not end.silent:
                self._read(end)
            for each in (end, end.peer):
                if each.finished and not each.waiting:
                    each.link.shutdown(socket.SHUT_WR)
                    each.finished = False
        except BlockingIOError:
            return
        except OSError:
            self._close(end)
        else:
            if end.silent and end.peer.silent and not end.waiting and not end.peer.waiting:
                self._close(end)

    def _read(self, end: _End) -> None:
        data = end.link.recv(_CHUNK)
        end.peer.waiting += data
        if not data:
            end.silent = end.peer.finished = True

    def _close(self, end: _End) -> None:
        for each in (end, end.peer):
            self._ends.pop(each.link.fileno(), None)
            each.link.close()


def fork_off(path: str) -> None:
    """Have an orphan serve, which ends with its namespace: no child that the program wonders at."""
    shim = Shim(path)
    if child := os.fork():
        os.waitpid(child, 0)
        return
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, shim.port)
        os.closerange(shim.port + 1, 1 << 16)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        try:
            shim.serve()
        finally:
            os._exit(1)
    os._exit(0)


def main() -> None:
    """Serve beside a program that this process becomes."""
    fork_off(sys.argv[1])
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 -- the record's command, no shell


if __name__ == "__main__":
    main()
