"""A node that runs the modules of tasks: served over HTTP, with real processes for its guests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import convert
from msgspec.structs import replace
from wasmtime import wat2wasm

from bascule.app.guest_processes import GuestProcess, GuestProcesses
from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.audit.events import GuestEnded
from bascule.audit.ledger import Ledger
from bascule.client.guests import GuestSaid, GuestsClient
from bascule.client.http import ApiClient
from bascule.doors.hostcalls.api import GuestRules, GuestStarter, guest_routes
from bascule.doors.hostcalls.orders import GuestOrder, KeptModules
from bascule.doors.sessions import Sessions
from bascule.doors.tools.api import tools_routes
from bascule.lifetime import Lifetime
from bascule.model.task import Executable
from bascule.testing.clock import FakeClock
from bascule.wire.api.guests import GuestExit, Invocation
from tests.asgi.caller import make_tokens
from tests.doors.hostcalls.wat import call, guest
from tests.node.fakes import World
from tests.waits import SOON_SECONDS

#: Says hello in all three ways, and ends with the number of its arguments and variables.
TALKING = """
(module
  (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $env (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\\20\\00\\00\\00\\05\\00\\00\\00")
  (data (i32.const 8) "\\28\\00\\00\\00\\02\\00\\00\\00")
  (data (i32.const 32) "hello")
  (data (i32.const 40) "\\ff\\fe")
  (func (export "_start")
    (drop (call $log (i32.const 2) (i32.const 32) (i32.const 5)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 64)))
    (drop (call $write (i32.const 2) (i32.const 8) (i32.const 1) (i32.const 64)))
    (drop (call $args (i32.const 80) (i32.const 96)))
    (drop (call $env (i32.const 84) (i32.const 96)))
    (call $exit (i32.add (i32.mul (i32.const 10) (i32.load (i32.const 80)))
                         (i32.load (i32.const 84))))))
"""
#: Says that it is there, and goes on for ever.
ENDLESS = """
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\\20\\00\\00\\00\\05\\00\\00\\00")
  (data (i32.const 32) "there")
  (func (export "_start")
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 64)))
    (loop $again (br $again))))
"""


#: Calls a tool, and ends with what came of it.
CALLING = guest(
    call("mcp_open", 0, 2),
    call("mcp_call_tool", "$0", 8, 4, 16, 2, 1024, 32),
    data={0: b"fs", 8: b"read", 16: b"{}", 32: 8192},
)


class Noted(GuestProcesses):
    """Processes that a test can get at."""

    def __init__(self, ledger: Ledger, modules: KeptModules | None) -> None:
        super().__init__(ledger, modules)
        self.launched: list[GuestProcess] = []

    async def launch(self, order: GuestOrder) -> GuestProcess:
        guest = await super().launch(order)
        self.launched.append(guest)
        return guest


class Node(Lifetime):
    """A node over fakes; ``tasks`` are by name, each with its executable."""

    def __init__(
        self,
        executables: dict[str, Any],
        rules: GuestRules | None = None,
        starter: GuestStarter | None = None,
        modules: KeptModules | None = None,
    ) -> None:
        self.clock = FakeClock()
        policy = {"enabled": True, "default_server_ids": ["fs"], "users": "open"}
        self.world = World(tasks=dict.fromkeys(executables, policy))
        snapshot = self.world.core.snapshot
        tasks = {
            name: replace(snapshot.tasks[name], executable=convert(one, Executable | None))
            for name, one in executables.items()
        }
        self.world.core.snapshot = replace(snapshot, tasks=tasks)
        self.tokens = make_tokens()
        self.sessions = Sessions(self.world.core, self.tokens, clock=self.clock)
        self.processes = Noted(self.world.ledger, modules)
        self.routes = guest_routes(
            self.sessions, starter or self.processes, rules or GuestRules(), clock=self.clock
        )
        self.app = GuardedApp([*tools_routes(self.sessions), *self.routes], self.tokens)
        self.processes.app = self.app
        self.server = Serving(self.app)

    async def start(self) -> None:
        await self.server.__aenter__()

    async def close(self) -> None:
        await self.server.__aexit__()
        await self.processes.close()
        await self.sessions.close()

    def ended(self) -> list[GuestEnded]:
        """Return what is written down of guests."""
        return [one for one in self.world.ledger.events if isinstance(one, GuestEnded)]

    async def token(self, task: str, **more: Any) -> str:
        return (await self.tokens.mint("alice", "client", task_id=task, **more)).token

    async def runs(self, task: str) -> AsyncGenerator[GuestSaid, None]:
        """Return the stream of an invocation with a new token."""
        return self.invoked(await self.token(task), task)

    def invoked(
        self, token: str, task: str, added: Invocation | None = None, person: str | None = None
    ) -> AsyncGenerator[GuestSaid, None]:
        """Return the stream of an invocation; closing it hangs up."""
        return self._invoked(token, task, added or Invocation(), person)

    async def _invoked(
        self, token: str, task: str, added: Invocation, person: str | None
    ) -> AsyncGenerator[GuestSaid, None]:
        async with ApiClient(self.server.url, token) as api:
            stream = GuestsClient(api, person=person).invoke(task, added)
            async with aclosing(stream):
                async for said in stream:
                    yield said


def module(folder: Path, text: str) -> str:
    """Write a guest into a folder, and return where it is."""
    path = folder / f"{sha256(text.encode()).hexdigest()[:8]}.wasm"
    path.write_bytes(bytes(wat2wasm(text)))
    return str(path)


def checksum(text: str) -> str:
    """Return the checksum of a guest."""
    return sha256(bytes(wat2wasm(text))).hexdigest()


def command_line(pid: int) -> bytes:
    """Return what everybody on the machine sees of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def heard(stream: AsyncGenerator[GuestSaid, None]) -> list[GuestSaid]:
    """Return all that a guest says; how it ended is the last."""
    async with asyncio.timeout(SOON_SECONDS), aclosing(stream):
        return [said async for said in stream]


async def exit_of(stream: AsyncGenerator[GuestSaid, None]) -> GuestExit:
    """Return how a guest ended."""
    last = (await heard(stream))[-1]
    assert isinstance(last, GuestExit)
    return last


async def first(stream: AsyncGenerator[GuestSaid, None]) -> GuestSaid:
    """Wait for the first word of a guest."""
    async with asyncio.timeout(SOON_SECONDS):
        return await anext(stream)
