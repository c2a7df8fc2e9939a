"""One session for each client token and task, kept while it is used.

Requests of one token share a session, so that its budgets and tool table are one. A session ends
when nobody has used it for a while, and when its token is gone: a revoked token's requests are
refused at the guard, and what it held open is closed at the next sweep. Below: the bridge. Above:
``api.py``; the composition root runs ``keep_clean``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Protocol, Self

from bascule.asgi.identity import Principal
from bascule.asgi.tokens import TokenRecord
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError, SessionRefused
from bascule.node.bridge.core import BridgeCore
from bascule.node.bridge.session import Session

IDLE_SECONDS = 600.0
SWEEP_SECONDS = 5.0


class TokenList(Protocol):
    """Knows which tokens there are (``bascule.asgi.tokens.Tokens`` does)."""

    async def records(self) -> Sequence[TokenRecord]:
        """Return what is kept of all tokens."""
        ...


class _Held:
    """A session, who uses it now, and when it was used last."""

    __slots__ = ("session", "used_at", "users")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.users = 0
        self.used_at = 0.0


class Sessions:
    """The sessions of all client tokens."""

    def __init__(
        self,
        bridge: BridgeCore,
        tokens: TokenList,
        *,
        clock: Clock = SYSTEM_CLOCK,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._bridge = bridge
        self._tokens = tokens
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._held: dict[tuple[str, str], _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    @asynccontextmanager
    async def of(self, principal: Principal) -> AsyncGenerator[Session, None]:
        """Return the session of a token for the time of one request; raise SessionRefused."""
        held = self._find(principal)
        held.users += 1
        try:
            yield held.session
        finally:
            held.users -= 1
            held.used_at = self._clock.monotonic()

    def _find(self, principal: Principal) -> _Held:
        task = principal.task_id
        if task is None:
            raise SessionRefused("task_required", "a caller over the network needs a task")
        held = self._held.get((principal.token_id, task))
        if held is None:
            # The registry's other tasks are none of a client's business: no list of them here.
            if task not in self._bridge.snapshot.tasks:
                raise SessionRefused("unknown_task", f"the token's task {task!r} does not exist")
            held = _Held(self._bridge.session(task=task, caller=principal.name))
            self._held[principal.token_id, task] = held
        return held

    async def sweep(self) -> None:
        """End the sessions that are idle, and those whose token was revoked or has expired."""
        held_before = list(self._held.items())  # a token that is newer than the list is not gone
        now = self._clock.now()
        living = {
            record.id
            for record in await self._tokens.records()
            if record.expires_at is None or record.expires_at > now
        }
        idle_since = self._clock.monotonic() - self._idle_seconds
        for key, held in held_before:
            idle = held.users == 0 and held.used_at <= idle_since
            if idle or key[0] not in living:
                del self._held[key]
                await held.session.close()

    async def keep_clean(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            try:
                await self.sweep()
            except BasculeError:
                continue  # the tokens cannot be read now; the guard refuses meanwhile

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every session."""
        while self._held:
            _, held = self._held.popitem()
            await held.session.close()
