"""One session for each client token, person, task and narrowing, kept while it is used.

Requests of one token for one person that ask for the same share a session, so that its tool table
is one; those of two people share nothing. A session ends when nobody has used it for a while, when
its token needs the place for another, and when its token is gone: a revoked token's requests are
refused at the guard, and what it held open is closed at the next sweep, which the composition root
runs (``keep_clean``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct

from bascule.asgi.errors import Refused
from bascule.auth.identity import Principal
from bascule.auth.token_record import TokenRecord
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError, SessionRefused
from bascule.lifetime import Lifetime
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Position
from bascule.model.task import TaskRecord
from bascule.node.bridge.core import BridgeCore
from bascule.node.bridge.opening import Opening
from bascule.node.bridge.session import Session
from bascule.node.changes import OnChange, Unsubscribe
from bascule.policy.compose import admitted

IDLE_SECONDS = 600.0
SWEEP_SECONDS = 5.0
#: How many sessions one person of a token may have at once, each with a narrowing of its own.
MAX_PER_PERSON = 32
#: How many all people of one token may have together.
MAX_PER_TOKEN = 1024
#: How much of outputs that were cut is kept for one person of a token, over all its sessions.
MAX_OUTPUT_BYTES = 32 * 1024 * 1024
#: The same for all people of one token.
MAX_TOKEN_OUTPUT_BYTES = 256 * 1024 * 1024

#: Of a token's sessions: for whom, for which task, and what it asks for.
Key = tuple[str | None, str, tuple[SessionRequest, ...]]


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
        max_per_person: int = MAX_PER_PERSON,
        max_per_token: int = MAX_PER_TOKEN,
    ) -> None:
        self._bridge = bridge
        self._tokens = tokens
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._max_per_person = max_per_person
        self._max_per_token = max_per_token
        #: Called with each token that is gone, if it had sessions.
        self.on_gone: Callable[[str], None] | None = None
        #: The sessions of each token.
        self._held: dict[str, dict[Key, _Held]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    @property
    def position(self) -> Position:
        """Return which registry decides here, and its revision."""
        return self._bridge.snapshot.position

    def subscribe(self, on_change: OnChange) -> Unsubscribe:
        """Call a function for each change of any server, its tools or the records."""
        return self._bridge.subscribe(on_change)

    def takes_user(self, principal: Principal) -> bool:
        """Say whether the token's task lets a chat request's ``user`` say for whom it is."""
        task = self._bridge.snapshot.tasks.get(principal.task_id or "")
        return task is not None and task.mcp.user_from_request

    def refuse_absent(self, principal: Principal) -> None:
        """Raise SessionRefused for a person who may not use the token's task now.

        A session that is open already says so of calls alone.
        """
        registry = self._bridge.snapshot
        task = registry.tasks.get(principal.task_id or "")
        policy = None if task is None else task.mcp
        admitted(registry, policy, principal.person, acting=principal.acts_for_users)

    def task_of(self, principal: Principal) -> TaskRecord:
        """Return the record of a token's task; raise SessionRefused where there is none."""
        found = self._bridge.snapshot.tasks.get(principal.task_id or "")
        if found is None:
            raise self._unknown_task(principal)
        return found

    def of(self, principal: Principal, *requests: SessionRequest) -> Use:
        """Return a token's session for the time of one request; entering raises SessionRefused.

        It is the session of the principal's person alone. Each of ``requests`` narrows it; without
        any it has all that the token's task allows.
        """
        return Use(self, principal, requests)

    def give_back(self, held: _Held, principal: Principal, kept_before: int) -> None:
        """Note that a request is done with a session."""
        held.users -= 1
        held.used_at = self._clock.monotonic()
        if held.session.outputs.size > kept_before:
            self._bound_outputs(principal)

    def find(
        self, principal: Principal, requests: tuple[SessionRequest, ...]
    ) -> tuple[_Held, _Held | None]:
        """Return a session, and the one that has to go for it; raise SessionRefused."""
        task = principal.task_id
        if task is None:
            words = "a caller over the network needs a task"
            raise self.refused(principal, "task_required", words)
        own, key = self._held.get(principal.token_id, {}), (principal.person, task, requests)
        held = own.get(key)
        if held is not None:
            return held, None
        if task not in self._bridge.snapshot.tasks:
            raise self._unknown_task(principal)
        leaving = self._leaving(principal, own)
        opening = _opening(principal, task, requests or (SessionRequest(),))
        standing = partial(self._lives, principal.token_id)
        held = _Held(self._bridge.open_session(opening, standing=standing))
        evicted = None if leaving is None else own.pop(leaving)
        self._held.setdefault(principal.token_id, own)[key] = held
        return held, evicted

    def _unknown_task(self, principal: Principal) -> SessionRefused:
        # The registry's other tasks are none of a client's business: no list of them here.
        words = f"the token's task {principal.task_id!r} does not exist"
        return self.refused(principal, "unknown_task", words)

    def refused(self, principal: Principal, reason: str, message: str) -> SessionRefused:
        """Write down a session that is refused before the bridge hears of it."""
        refusal = SessionRefused(reason, message)
        self._bridge.note_refused(
            refusal,
            task_id=principal.task_id,
            caller=principal.name,
            token_id=principal.token_id,
            person=principal.person,
        )
        return refusal

    def _leaving(self, principal: Principal, own: Mapping[Key, _Held]) -> Key | None:
        """Return which session makes room for another: the person's, or the token's, idlest."""
        theirs = [key for key in own if key[0] == principal.person]
        if len(theirs) >= self._max_per_person:
            return self._idlest(principal, {key: own[key] for key in theirs})
        return self._idlest(principal, own) if len(own) >= self._max_per_token else None

    def _idlest(self, principal: Principal, held: Mapping[Key, _Held]) -> Key:
        """Return the session unused for longest; one in use makes room for nobody."""
        idle = [key for key, one in held.items() if one.users == 0]
        if not idle:
            words = f"the token has {len(held)} sessions in use, each with a narrowing of its own"
            self.refused(principal, "too_many_sessions", words)
            raise Refused("mcp_budget_exceeded", words, headers={"Retry-After": "1"})
        return min(idle, key=lambda key: held[key].used_at)

    def _bound_outputs(self, principal: Principal) -> None:
        """Forget outputs when a person, or all people of a token, have too many."""
        own = self._held.get(principal.token_id, {})
        theirs = [held for key, held in own.items() if key[0] == principal.person]
        _bound(theirs, MAX_OUTPUT_BYTES)
        _bound(own.values(), MAX_TOKEN_OUTPUT_BYTES)

    async def sweep(self) -> None:
        """End the sessions that are idle, and those whose token was revoked or has expired."""
        # A token that is newer than the list is not gone.
        held_before = [(token, *one) for token, own in self._held.items() for one in own.items()]
        living = await self.living()
        idle_since = self._clock.monotonic() - self._idle_seconds
        for token in {token for token, _, _ in held_before} - living:
            if self.on_gone is not None:
                self.on_gone(token)
        for token, key, held in held_before:
            idle = held.users == 0 and held.used_at <= idle_since
            if (idle or token not in living) and self._forget(token, key, held):
                await held.session.close()

    def _forget(self, token_id: str, key: Key, held: _Held) -> bool:
        """Hold a session no longer; say whether it was held."""
        own = self._held.get(token_id, {})
        if own.get(key) is not held:
            return False
        del own[key]
        if not own:
            del self._held[token_id]
        return True

    async def living(self) -> set[str]:
        """Return which tokens count now."""
        now = self._clock.now()
        return {
            record.id
            for record in await self._tokens.unaltered()
            if record.expires_at is None or record.expires_at > now
        }

    async def _lives(self, token_id: str) -> bool:
        """Say whether a token still counts: a call that has waited asks before it leaves."""
        return token_id in await self.living()

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
            _, own = self._held.popitem()
            for held in own.values():
                await held.session.close()


def _opening(principal: Principal, task: str, requests: tuple[SessionRequest, ...]) -> Opening:
    first, *further = requests
    return Opening(
        request=first,
        further=tuple(further),
        task=task,
        caller=principal.name,
        token_id=principal.token_id,
        person=principal.person,
        acting=principal.acts_for_users,
        maker=principal.made_by,
    )


def _bound(sessions: Collection[_Held], most: int) -> None:
    """Forget outputs beyond so many bytes: those of the sessions unused for longest."""
    kept = sum(held.session.outputs.size for held in sessions)
    if kept <= most:
        return
    for held in sorted(sessions, key=lambda held: held.used_at):
        if kept <= most:
            return
        kept -= held.session.outputs.size
        held.session.outputs.clear()


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
        self._sessions.give_back(self._held, self._principal, self._kept)
