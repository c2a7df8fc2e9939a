"""``POST /api/v1/tasks/{id}/invoke``: run the module of a token's own task, and tell how it goes.

The guest runs in a process of its own, which calls tools and models with the caller's token: what
it may do is decided where every other call is. What keeps it from running is an error before the
stream begins. Who hangs up ends the guest.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import Final, Protocol

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from bascule.asgi.errors import Refused
from bascule.asgi.guard import STILL, GuardedRoute, direct_route
from bascule.asgi.json import as_object, as_struct, read_body
from bascule.asgi.narrowing import narrowing_in
from bascule.asgi.parameters import no_parameters
from bascule.asgi.presence import first_of, while_connected
from bascule.asgi.speaker import speaker
from bascule.asgi.sse import DRAINING, Event, EventStream
from bascule.auth.identity import Principal
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.doors.hostcalls.executables import (
    arguments_of,
    environment_of,
    executable_of,
    permitted_module,
)
from bascule.doors.hostcalls.host import GuestLimits
from bascule.doors.hostcalls.orders import GuestOrder
from bascule.doors.sessions import Sessions
from bascule.errors import BasculeError
from bascule.model.task import TaskRecord
from bascule.outbound.rules import NodeRules
from bascule.wire.api.addresses import INVOKE
from bascule.wire.api.guests import Invocation

#: How many guests one token may have at once.
MAX_PER_TOKEN: Final = 4
_RETRY_SECONDS: Final = "5"
#: How often the token of a guest that runs is looked at again.
_STILL_SECONDS: Final = 5.0
_INSTALL: Final = "this node has no WASM engine; install it: pip install 'bascule[wasm]'"


class RunningGuest(Protocol):
    """A guest whose module is compiled, in a process of its own."""

    def events(self) -> AsyncGenerator[Event, None]:
        """Yield what it says; the last event is ``exit``, whatever becomes of the process."""
        ...

    def interrupt(self) -> None:
        """Have it end soon; its events go on until then."""
        ...

    async def end(self) -> None:
        """End it, if it has not ended, and wait until its process is gone; any number of times."""
        ...


class GuestStarter(Protocol):
    """Starts guests (``bascule.app.guest_processes.GuestProcesses`` does)."""

    async def launch(self, order: GuestOrder) -> RunningGuest:
        """Return the guest once its module is compiled; raise Refused if it is not run."""
        ...


class GuestRules(Struct, frozen=True, kw_only=True):
    """Which modules may run here, how many at once, for how long, and with how much memory."""

    lists: NodeRules = NodeRules()
    most: int = 16
    seconds: float = 600.0
    memory_bytes: int = GuestLimits().memory_bytes


def guest_routes(
    sessions: Sessions, starter: GuestStarter, rules: GuestRules, *, clock: Clock = SYSTEM_CLOCK
) -> list[GuardedRoute]:
    """Return the route: for client tokens alone."""
    door = GuestsDoor(sessions, starter, rules, clock)
    return [direct_route(INVOKE, door.invoke, ["POST"], permission="tools:use")]


class GuestsDoor:
    """The endpoint."""

    def __init__(
        self, sessions: Sessions, starter: GuestStarter, rules: GuestRules, clock: Clock
    ) -> None:
        self._sessions = sessions
        self._starter = starter
        self._rules = rules
        self._clock = clock
        #: How many guests each token has now.
        self._running: Counter[str] = Counter()

    async def invoke(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the module of the token's task, and stream what it says."""
        no_parameters(scope)
        asking = speaker(scope)
        task = self._own_task(asking, scope["path_params"]["id"])
        body = await read_body(receive)
        added = as_struct(await as_object(body), Invocation) if body else Invocation()
        order = self._order(task, added, asking, scope)
        if find_spec("wasmtime") is None:
            raise Refused("no_engine", _INSTALL)
        with self._place(asking):
            guest = await while_connected(scope, receive, self._starter.launch(order))
            try:
                stream = EventStream(guest.events(), self._clock, finishes=True)
                async with _watched(scope, guest, self._clock):
                    await stream(scope, receive, send)
            finally:
                await guest.end()

    def _own_task(self, asking: Principal, named: str) -> TaskRecord:
        """Return the task of a token, which must be the one that is named; raise SessionRefused."""
        self._sessions.refuse_absent(asking)
        if named != asking.task_id:
            words = f"the token is for task {asking.task_id!r} and no other"
            raise self._sessions.refused(asking, "task", words)
        return self._sessions.task_of(asking)

    def _order(
        self, task: TaskRecord, added: Invocation, asking: Principal, scope: Scope
    ) -> GuestOrder:
        executable = executable_of(task)
        most = self._rules.seconds
        seconds = most if added.timeout_ms is None else min(most, added.timeout_ms / 1000)
        return GuestOrder(
            token=Headers(scope=scope)["authorization"].partition(" ")[2].strip(),
            task=task.task_id,
            path=permitted_module(self._rules.lists, executable.path),
            checksum=executable.checksum_sha256,
            args=arguments_of(executable, added),
            env=environment_of(executable, added),
            limits=GuestLimits(seconds=seconds, memory_bytes=self._rules.memory_bytes),
            model=added.model,
            person=asking.person if asking.acts_for_users else None,
            caller=asking.name,
            token_id=asking.token_id,
            requests=narrowing_in(scope),
        )

    @contextmanager
    def _place(self, asking: Principal) -> Generator[None]:
        """Hold one of the token's places and one of the node's; raise Refused if none is free."""
        own, token = self._running, asking.token_id
        if own[token] >= MAX_PER_TOKEN:
            raise _full(f"the token has {own[token]} guests running; it may have {MAX_PER_TOKEN}")
        if own.total() >= self._rules.most:
            raise _full(f"this node runs {self._rules.most} guests at most (node.max_guests)")
        own[token] += 1
        try:
            yield
        finally:
            own[token] -= 1
            if not own[token]:
                del own[token]


def _full(words: str) -> Refused:
    headers = {"Retry-After": _RETRY_SECONDS}
    return Refused("mcp_budget_exceeded", words, headers=headers)


@asynccontextmanager
async def _watched(scope: Scope, guest: RunningGuest, clock: Clock) -> AsyncGenerator[None, None]:
    """Have a guest end when its token does, or the server drains: it could call nothing more."""
    works = [_revoked(scope[STILL], clock)]
    draining = scope.get(DRAINING)
    if isinstance(draining, asyncio.Event):
        works.append(_set(draining))
    watching = asyncio.create_task(first_of(*works))
    watching.add_done_callback(lambda task: None if task.cancelled() else guest.interrupt())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait((watching,))


async def _set(event: asyncio.Event) -> None:
    await event.wait()


async def _revoked(still: Callable[[], Awaitable[object]], clock: Clock) -> None:
    """Return once the token of a request is no longer valid."""
    while True:
        await clock.sleep(_STILL_SECONDS)
        try:
            await still()
        except BasculeError:
            return
