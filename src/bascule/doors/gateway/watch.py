"""What one principal sees at one route, watched for all of its streams together.

A change of the records or of a server's tools is a reason to look; only a list that is another one
than before is told, at most once a second. What changes meanwhile is seen by the next look, so the
last change is never lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Sequence

from bascule.clock import Clock
from bascule.doors.gateway.caller import Caller
from bascule.doors.gateway.listener import CHANGED, Listener
from bascule.doors.gateway.lists import NOTHING, Lists
from bascule.doors.sessions import Sessions, Use
from bascule.errors import BasculeError, SessionRefused
from bascule.model.status import Change
from bascule.node.bridge.session import Session

logger = logging.getLogger(__name__)

LEAST_SECONDS = 1.0
#: So many streams are woken in one turn of the event loop.
AT_ONCE = 64


class Watch:
    """The list of one principal at one route, and the streams that are told of its changes.

    It uses the bridge's session for as long as there are streams, so that what the session keeps
    is not swept. A session that is refused is tried again whenever the records change.
    """

    def __init__(self, caller: Caller, sessions: Sessions, lists: Lists, clock: Clock) -> None:
        self._caller = caller
        self._sessions = sessions
        self._lists = lists
        self._clock = clock
        #: In the order in which they came.
        self._listeners: dict[Listener, None] = {}
        self._opening = asyncio.Lock()
        self._use: Use | None = None
        self._session: Session | None = None
        self._unsubscribe = sessions.subscribe(self._heed)
        self._version: bytes | None = None
        #: Whether the session kept outputs at the last look: a tool to read them is listed then.
        self._keeps_outputs = False
        #: Whether there was a look; the first one is no reason to wait for the next.
        self._begun = False
        self._doubted = False
        self._owed = False
        self._working: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def join(self, listener: Listener, seen: bytes | None) -> None:
        """Tell a stream from now on, and of what has changed since its client saw the list."""
        self._listeners[listener] = None
        if self._version is None:
            self._version = seen
            self.doubt()
        elif seen not in (None, self._version):
            listener.wake(CHANGED)

    def leave(self, listener: Listener) -> None:
        """Tell a stream no more."""
        self._listeners.pop(listener, None)

    async def open(self) -> None:
        """Use the session from now on; one that is refused shows nothing, until it is not."""
        async with self._opening:
            if self._use is None:
                use = self._sessions.of(self._caller.principal, *self._caller.requests)
                try:
                    self._session = await use.__aenter__()
                except SessionRefused:
                    return
                self._use = use
                self._unsubscribe()
                self._unsubscribe = self._session.subscribe(self._heed)

    async def close(self) -> None:
        """Watch no more, and use the session no more; this waits for nothing."""
        self._unsubscribe()
        if self._working is not None:
            self._working.cancel()
        use, self._use, self._session = self._use, None, None
        if use is not None:
            await use.__aexit__()

    def found(self, version: bytes) -> None:
        """Note the version that the list has; one that is another than before is to be told."""
        if version != self._version:
            self._owed = self._owed or self._version is not None
            self._version = version
            self._work()

    def doubt(self) -> None:
        """Look again: the list may be another one now."""
        self._doubted = True
        self._work()

    def check(self) -> None:
        """Look again if the session keeps outputs now and kept none before, or the reverse."""
        if self._session is not None and bool(self._session.outputs) != self._keeps_outputs:
            self.doubt()

    def _heed(self, change: Change) -> None:
        """Look where a change may make another list."""
        if change.kind != "state" or self._is_back(change):
            self.doubt()

    def _is_back(self, change: Change) -> bool:
        """Say whether a server is there now that could not be listed."""
        session = self._session
        if session is None or change.state != "connected":
            return False
        return session.known_tools().missing(change.server_id) is not None

    def _work(self) -> None:
        if self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._look_and_tell())

    async def _look_and_tell(self) -> None:
        while self._doubted or self._owed:
            rests, self._begun = self._begun, True
            if self._doubted:
                self._doubted = False
                await self._look()
            if self._owed:
                self._owed, rests = False, True
                await wake_all(self._newest(), CHANGED, self._clock)
            if rests:
                await self._clock.sleep(LEAST_SECONDS)

    async def _look(self) -> None:
        try:
            await self.open()
            if self._session is None:
                self.found(NOTHING)
                return
            self._keeps_outputs = bool(self._session.outputs)
            self.found(
                (await self._lists.current(self._session, self._caller, unseen=True)).version
            )
        except BasculeError as error:
            logger.warning("what a stream shows cannot be looked at now: %s", error)

    def _newest(self) -> list[Listener]:
        """Return whom to tell: of the streams of one session, the last alone."""
        newest: dict[Hashable, Listener] = {one.session or one: one for one in self._listeners}
        return list(newest.values())


async def wake_all(listeners: Sequence[Listener], due: int, clock: Clock) -> None:
    """Wake streams, a few in each turn of the event loop, so that nothing else is held up."""
    for start in range(0, len(listeners), AT_ONCE):
        for listener in listeners[start : start + AT_ONCE]:
            listener.wake(due)
        await clock.sleep(0)
