"""A plain blocking peer for real server processes: write a line, read a line, with a bound."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from bascule.testing import ScriptedServer

META = "io.modelcontextprotocol/"
MODERN_META = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}}


class Peer:
    """One server process, its pipes, and the ids of what was asked."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.stdin, self.stdout, self.stderr = (
            self.process.stdin.fileno(),
            self.process.stdout.fileno(),
            self.process.stderr.fileno(),
        )
        self.buffer = b""
        self.last_id = 0

    def read(self, descriptor: int, size: int = 1 << 16) -> bytes:
        """Some bytes, none at the end, a failure after ten seconds of silence."""
        ready, _, _ = select.select([descriptor], [], [], 10)
        assert ready, "the server said nothing"
        return os.read(descriptor, size)

    def line(self) -> bytes:
        """The next line without its end; nothing when the output is closed."""
        while b"\n" not in self.buffer:
            data = self.read(self.stdout)
            if not data:
                return b""
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def frame(self) -> Any:
        return json.loads(self.line())

    def send(self, **message: Any) -> None:
        os.write(self.stdin, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def post(self, method: str, /, **params: Any) -> int:
        """Send a request; its id."""
        self.last_id += 1
        self.send(id=self.last_id, method=method, params=params)
        return self.last_id

    def ask(self, method: str, /, **params: Any) -> Any:
        """Send a request and read one frame."""
        self.post(method, **params)
        return self.frame()

    def call(self, name: str, /, **arguments: Any) -> Any:
        return self.ask("tools/call", name=name, arguments=arguments)

    def modern(self, method: str, /, **params: Any) -> Any:
        return self.ask(method, **params, _meta=MODERN_META)

    def hang_up(self) -> None:
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()

    def end(self) -> int:
        """Close the input, wait for the exit."""
        self.hang_up()
        return self.process.wait(10)

    def dispose(self) -> None:
        """Whatever state it is in: gone, and its pipes with it."""
        self.hang_up()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdout, self.process.stderr):
            with suppress(OSError):
                if stream:
                    stream.close()


@pytest.fixture
def spawn() -> Iterator[Callable[..., Peer]]:
    """Start a command; every process is gone after the test."""
    peers: list[Peer] = []

    def start(*command: str) -> Peer:
        peers.append(Peer(*command))
        return peers[-1]

    yield start
    for peer in peers:
        peer.dispose()


@pytest.fixture
def start(spawn) -> Callable[..., Peer]:
    """Start a scripted server, past its handshake unless ``raw``."""

    def begin(*, raw: bool = False, **script: Any) -> Peer:
        command, arguments = ScriptedServer(**script).command
        peer = spawn(command, *arguments)
        if not raw:
            peer.ask("initialize", protocolVersion="2025-11-25")
            peer.send(method="notifications/initialized")
        return peer

    return begin
