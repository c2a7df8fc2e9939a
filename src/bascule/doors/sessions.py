"""One session for each client token, task and narrowing, kept while it is used.

Requests of one token that ask for the same share a session, so that its tool table is one. A
session ends when nobody has used it for a while, when its token needs the place for another, and
when its token is gone: a revoked token's requests are refused at the guard, and what it held open
is closed at the next sweep, which the composition root runs (``keep_clean``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct

from bascule.asgi.errors import Refused
from bascule.asgi.whoami import Position
from bascule.auth.identity import Principal
from bascule.auth.token_record import TokenRecord
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError, SessionRefused
from bascule.lifetime import Lifetime
from bascule.model.session import SessionRequest
from bascule.node.bridge.core import BridgeCore
from bascule.node.bridge.opening import Opening
from bascule.node.bridge.session import Session

IDLE_SECONDS = 600.0
SWEEP_SECONDS = 5.0
#: How many sessions one token may have at once, each with a narrowing of its own.
MAX_PER_TOKEN = 32
#: How much of outputs that were cut is kept for one token, over all its sessions.
MAX_OUTPUT_BYTES = 32 * 1024 * 1024

#: Token, task, and what the session asks for.
Key = tuple[str, str, tuple[SessionRequest, ...]]


class TokenList(Protocol):
    """Knows which tokens there are (``bascule.auth.tokens.Tokens`` does)."""

    async def unaltered(self) -> Sequence[TokenRecord]:
        """Return the records of tokens that nobody edited."""
        ...


class _Held(Struct, eq=False):
    """A session, who uses it now, and when it was used last."""

    session: Session
    users: int = 0
    used_at: float = 0.0


class Sessions(Lifetime):
    """The sessions of all client tokens."""

    def __init__(
        self,
        bridge: BridgeCore,
        tokens: TokenList,
        *,
        clock: Clock = SYSTEM_CLOCK,
        idle_seconds: float = IDLE_SECONDS,
        max_per_token: int = MAX_PER_TOKEN,
    ) -> None:
        self._bridge = bridge
        self._tokens = tokens
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._max_per_token = max_per_token
        self._held: dict[Key, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def position(self) -> Position:
        """Return which registry decides here, and its revision."""
        snapshot = self._bridge.snapshot
        return Position(snapshot.store_id, snapshot.revision)

    def of(self, principal: Principal, *requests: SessionRequest) -> Use:
        """Return a token's session for the time of one request; entering raises SessionRefused.

        Each of ``requests`` narrows it; without any it has all that the token's task allows.
        """
        return Use(self, principal, requests)

    def give_back(self, held: _Held, token_id: str, kept_before: int) -> None:
        """Note that a request is done with a session."""
        held.users -= 1
        held.used_at = self._clock.monotonic()
        if held.session.outputs.size > kept_before:
            self._bound_outputs(token_id)

    def find(
        self, principal: Principal, requests: tuple[SessionRequest, ...]
    ) -> tuple[_Held, _Held | None]:
        """Return a session, and the one that has to go for it; raise SessionRefused."""
        task = principal.task_id
        if task is None:
            words = "a caller over the network needs a task"
            raise self._refused(principal, "task_required", words)
        key = (principal.token_id, task, requests)
        held = self._held.get(key)
        if held is not None:
            return held, None
        # The registry's other tasks are none of a client's business: no list of them here.
        if task not in self._bridge.snapshot.tasks:
            words = f"the token's task {task!r} does not exist"
            raise self._refused(principal, "unknown_task", words)
        leaving = self._leaving(principal)
        first, *further = requests or (SessionRequest(),)
        held = _Held(
            self._bridge.open_session(
                Opening(
                    request=first,
                    further=tuple(further),
                    task=task,
                    caller=principal.name,
                    token_id=principal.token_id,
                ),
                standing=partial(self._lives, principal.token_id),
            )
        )
        evicted = None if leaving is None else self._held.pop(leaving)
        self._held[key] = held
        return held, evicted

    def _refused(self, principal: Principal, reason: str, message: str) -> SessionRefused:
        """Write down a session that is refused before the bridge hears of it."""
        refusal = SessionRefused(reason, message)
        self._bridge.note_refused(
            refusal,
            task_id=principal.task_id,
            caller=principal.name,
            token_id=principal.token_id,
        )
        return refusal

    def _leaving(self, principal: Principal) -> Key | None:
        """Return which session of a token makes room for another: the one unused for longest."""
        own = [key for key in self._held if key[0] == principal.token_id]
        if len(own) < self._max_per_token:
            return None
        idle = [key for key in own if self._held[key].users == 0]
        if not idle:
            words = f"the token has {len(own)} sessions in use, each with a narrowing of its own"
            self._refused(principal, "too_many_sessions", words)
            raise Refused("mcp_budget_exceeded", words, headers={"Retry-After": "1"})
        return min(idle, key=lambda key: self._held[key].used_at)

    def _bound_outputs(self, token_id: str) -> None:
        """Forget outputs when there are too many: those of the sessions unused for longest."""
        own = [held for key, held in self._held.items() if key[0] == token_id]
        kept = sum(held.session.outputs.size for held in own)
        for held in sorted(own, key=lambda held: held.used_at):
            if kept <= MAX_OUTPUT_BYTES:
                return
            kept -= held.session.outputs.size
            held.session.outputs.clear()

    async def sweep(self) -> None:
        """End the sessions that are idle, and those whose token was revoked or has expired."""
        held_before = list(self._held.items())  # a token that is newer than the list is not gone
        living = await self._living()
        idle_since = self._clock.monotonic() - self._idle_seconds
        for key, held in held_before:
            idle = held.users == 0 and held.used_at <= idle_since
            if (idle or key[0] not in living) and self._held.get(key) is held:
                del self._held[key]
                await held.session.close()

    async def _living(self) -> set[str]:
        now = self._clock.now()
        return {
            record.id
            for record in await self._tokens.unaltered()
            if record.expires_at is None or record.expires_at > now
        }

    async def _lives(self, token_id: str) -> bool:
        """Say whether a token still counts: a call that has waited asks before it leaves."""
        return token_id in await self._living()

    async def keep_clean(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            try:
                await self.sweep()
            except BasculeError:
                continue  # the tokens cannot be read now; the guard refuses meanwhile

    async def close(self) -> None:
        """End every session."""
        while self._held:
            _, held = self._held.popitem()
            await held.session.close()


class Use:
    """A session while one request uses it."""

    __slots__ = ("_held", "_kept", "_principal", "_requests", "_sessions")

    def __init__(
        self, sessions: Sessions, principal: Principal, requests: tuple[SessionRequest, ...]
    ) -> None:
        self._sessions = sessions
        self._principal = principal
        self._requests = requests

    async def __aenter__(self) -> Session:
        held, evicted = self._sessions.find(self._principal, self._requests)
        held.users += 1
        self._held, self._kept = held, held.session.outputs.size
        if evicted is not None:
            try:
                await evicted.session.close()
            except BaseException:
                await self.__aexit__()
                raise
        return held.session

    async def __aexit__(self, *_: object) -> None:
        self._sessions.give_back(self._held, self._principal.token_id, self._kept)
