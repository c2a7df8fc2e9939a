"""What stays open at the gateway: GET streams of legacy sessions, and ``subscriptions/listen``.

A stream costs a connection and the task of its request. One ticker for all of them sends signs of
life, lets go of readers that take nothing, and ends the streams of tokens that are gone.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from typing import Final, NoReturn

import msgspec
from starlette.types import Scope

from bascule.asgi.presence import while_connected
from bascule.asgi.sse import DRAINING, KEEP_ALIVE
from bascule.auth.identity import Owner, Principal
from bascule.clock import Clock
from bascule.doors.gateway.caller import Caller
from bascule.doors.gateway.generation import SERVER_META
from bascule.doors.gateway.listener import END, RESULT, Frames, Listener
from bascule.doors.gateway.lists import Lists
from bascule.doors.gateway.messages import RpcError
from bascule.doors.gateway.reply import Http, event
from bascule.doors.gateway.seen import Seen
from bascule.doors.gateway.watch import AT_ONCE, Watch, wake_all
from bascule.doors.sessions import Sessions
from bascule.errors import BasculeError
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.session import SessionRequest
from bascule.wire.era import LIST_CHANGED, META
from bascule.wire.frames import RequestId, notification, response
from bascule.wire.rpc_codes import INVALID_PARAMS, SERVER_ERROR
from bascule.wire.strict_json import dumps

logger = logging.getLogger(__name__)

LISTEN: Final = "subscriptions/listen"
#: How many streams one person of a token may have open, and all people of one token.
MAX_PER_PERSON = 64
MAX_PER_TOKEN = 256
TICK_SECONDS = 2.0
RETRY_SECONDS = 5
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_SUBSCRIPTION = META + "subscriptionId"
_TOOLS = "toolsListChanged"
_TOO_MANY = 429
_DIGEST_BYTES = 16
_LEGACY = Frames(KEEP_ALIVE, event(notification(LIST_CHANGED, b"{}")), b"")

#: What a list is a function of: whose it is, of which task and narrowing, at which route and in
#: which version of the protocol.
_Key = tuple[Owner, str | None, tuple[SessionRequest, ...], str, str]


class Listening:
    """All open streams, and what they watch."""

    def __init__(
        self,
        sessions: Sessions,
        lists: Lists,
        clock: Clock,
        *,
        good_seconds: float,
        max_per_person: int = MAX_PER_PERSON,
        max_per_token: int = MAX_PER_TOKEN,
    ) -> None:
        self._sessions = sessions
        self._lists = lists
        self._clock = clock
        self._max_per_person = max_per_person
        self._max_per_token = max_per_token
        self.seen = Seen(clock, good_seconds)
        self._open: dict[Listener, None] = {}
        self._numbers: Counter[str | Owner] = Counter()
        self._watches: dict[_Key, Watch] = {}
        #: What looks after all streams while there are any: the ticker, and who hears of drains.
        self._keepers: dict[asyncio.Event | None, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def saw(self, caller: Caller, version: bytes) -> None:
        """Note that a caller was given its list."""
        alone = bool(caller.session_id)
        who = _digest(caller) if alone else _fingerprint(caller)
        self.seen.note(caller.principal.token_id, who, version, alone=alone)
        watch = self._watches.get(_key(caller))
        if watch is not None:
            watch.found(version)

    def end(self, caller: Caller) -> None:
        """End the streams of a legacy session."""
        session = _digest(caller)
        for listener in self._open:
            if listener.session == session:
                listener.wake(END)

    async def follow(self, caller: Caller, http: Http) -> None:
        """Answer the GET of a legacy session: a stream that ends with it."""
        listener = Listener(caller.principal, _digest(caller), _LEGACY, self._clock)
        seen = self.seen.last(caller.principal.token_id, listener.session, caller.born)
        await self._serve(caller, listener, seen, http, watched=True)

    async def listen(self, caller: Caller, id: RequestId, params: JsonObject, http: Http) -> None:
        """Answer ``subscriptions/listen``: say what is granted, then tell of it."""
        watched = _wants_tools(params.get("notifications"))
        frames = _frames(id, watched=watched)
        listener = Listener(caller.principal, b"", frames, self._clock)
        seen = self.seen.last(caller.principal.token_id, _fingerprint(caller), None)
        await self._serve(caller, listener, seen, http, watched=watched)

    async def _serve(
        self,
        caller: Caller,
        listener: Listener,
        seen: bytes | None,
        http: Http,
        *,
        watched: bool,
    ) -> None:
        scope, receive, send = http
        self._admit(listener)
        self._keep(listener, scope)
        watch = self._watch(caller) if watched else None
        try:
            if watch is not None:
                watch.join(listener, seen)
                await watch.open()
            await while_connected(scope, receive, listener.run(scope, send))
        finally:
            self._forget(listener)
            if watch is not None:
                watch.leave(listener)
                await self._drop(caller, watch)

    def _watch(self, caller: Caller) -> Watch:
        key = _key(caller)
        found = self._watches.get(key)
        if found is None:
            found = Watch(caller, self._sessions, self._lists, self._clock)
            self._watches[key] = found
        return found

    async def _drop(self, caller: Caller, watch: Watch) -> None:
        if not watch and self._watches.get(_key(caller)) is watch:
            del self._watches[_key(caller)]
            await watch.close()

    # --- how many

    def _admit(self, listener: Listener) -> None:
        principal = listener.principal
        own, of_token = self._numbers[principal.owner], self._numbers[principal.token_id]
        if own >= self._max_per_person:
            _refuse(own, "for this person" if principal.person else "of this token")
        if of_token >= self._max_per_token:
            _refuse(of_token, "of this token")
        self._open[listener] = None
        self._count(principal, 1)

    def _forget(self, listener: Listener) -> None:
        del self._open[listener]
        self._count(listener.principal, -1)
        if not self._open:
            for keeper in self._keepers.values():
                keeper.cancel()
            self._keepers.clear()

    def _count(self, principal: Principal, by: int) -> None:
        for key in (principal.owner, principal.token_id):
            self._numbers[key] += by
            if not self._numbers[key]:
                del self._numbers[key]

    # --- what looks after all of them

    def _keep(self, listener: Listener, scope: Scope) -> None:
        loop, draining = asyncio.get_running_loop(), scope.get(DRAINING)
        ticker = self._keepers.get(None)
        if ticker is None or ticker.done():
            self._keepers[None] = loop.create_task(self._tick())
        if not isinstance(draining, asyncio.Event):
            return
        if draining.is_set():
            listener.wake(RESULT)
        elif draining not in self._keepers:
            self._keepers[draining] = loop.create_task(self._drain(draining))

    async def _drain(self, draining: asyncio.Event) -> None:
        """End all streams with their result once the server drains."""
        await draining.wait()
        await wake_all(list(self._open), RESULT, self._clock)

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(TICK_SECONDS)
            await self._end_dead()
            for watch in self._watches.values():
                watch.check()
            for number, listener in enumerate(list(self._open), 1):
                listener.check(self._clock.monotonic())
                if number % AT_ONCE == 0:
                    await self._clock.sleep(0)

    async def _end_dead(self) -> None:
        """End the streams of tokens that were revoked or have expired."""
        before = list(self._open)  # a token that is newer than the list is not gone
        try:
            living = await self._sessions.living()
        except BasculeError:
            return  # the tokens cannot be read now; the guard refuses meanwhile
        for listener in before:
            if listener.principal.token_id not in living:
                listener.wake(END)


def _key(caller: Caller) -> _Key:
    who = caller.principal
    return who.owner, who.task_id, caller.requests, caller.view.route, caller.version


def _digest(caller: Caller) -> bytes:
    id = caller.session_id.encode()
    return hashlib.blake2s(id, digest_size=_DIGEST_BYTES).digest()


def _fingerprint(caller: Caller) -> bytes:
    """Return the key of a modern caller's list in few bytes: a narrowing may be long."""
    key = msgspec.msgpack.encode(_key(caller))
    return hashlib.blake2s(key, digest_size=_DIGEST_BYTES).digest()


def _wants_tools(wished: JsonValue) -> bool:
    """Say whether changes of the tools are wished for; other wishes are not granted."""
    if not is_object(wished):
        raise RpcError(INVALID_PARAMS, "params.notifications: must be an object")
    wish = wished.get(_TOOLS, False)
    if not isinstance(wish, bool):
        raise RpcError(INVALID_PARAMS, f"params.notifications.{_TOOLS}: must be true or false")
    return wish


def _frames(id: RequestId, *, watched: bool) -> Frames:
    tag: JsonObject = {_SUBSCRIPTION: id}
    granted: JsonObject = {_TOOLS: True} if watched else {}
    result = dumps({"resultType": "complete", "_meta": {**SERVER_META, **tag}})
    return Frames(
        event(notification(_ACKNOWLEDGED, dumps({"_meta": tag, "notifications": granted}))),
        event(notification(LIST_CHANGED, dumps({"_meta": tag}))),
        event(response(id, result)),
    )


def _refuse(number: int, whose: str) -> NoReturn:
    words = f"{number} streams {whose} are open already; close one of them"
    data: JsonObject = {"code": "mcp_budget_exceeded", "retry_after": RETRY_SECONDS}
    raise RpcError(SERVER_ERROR, words, data, status=_TOO_MANY)
