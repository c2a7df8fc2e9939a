"""Starting a server: its turn, its time, and whether it is worth waiting for.

The limit of a start counts from the moment its process may start. While it works (uses the
processor, says something) it keeps its turn and is waited for; one that has been quiet for a while
is on its own: the next one starts, and lists go on without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

from msgspec.structs import replace

from bascule.clock import Clock
from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    MalformedReply,
    RemoteError,
    ServerUnavailable,
)
from bascule.model.launcher import fetches, start_timeout
from bascule.model.sandbox import Standing
from bascule.model.server import ServerRecord
from bascule.model.whole_words import beginning
from bascule.node.pool.client import ClientEvents, McpClient, connect
from bascule.node.pool.start_signs import Confined, Launched, LocalProcess, Work, work_of
from bascule.node.pool.transport.channel import Channel, Events
from bascule.node.pool.turns import Turn, Turns
from bascule.node.ports import InputHandler, StillStarting
from bascule.node.settings import NodeSettings
from bascule.node.trial_steps import TrialSteps
from bascule.wire.api.trials import Step
from bascule.wire.era import Era

Open = Callable[[ServerRecord, Events], Awaitable[Channel]]

LOOK_SECONDS = 0.25  # between one look at a start and the next
QUIET_SECONDS = 1.0  # a start that has not worked for this long waits for something
TURN_SECONDS = 10.0  # the longest that a start has a turn, however hard it works
AGAIN_SECONDS = 1.0  # the longest that a list waits for a start after one that failed
_WORK_SECONDS = 0.02  # of a processor, within that time: two ticks of the usual clock
_LONGEST_WORD = 200


class Starter:
    """Brings one server up, one start at a time."""

    def __init__(
        self,
        open_channel: Open,
        settings: NodeSettings,
        clock: Clock,
        turns: Turns | None = None,
        work: Work = work_of,
    ) -> None:
        self._open_channel = open_channel
        self._settings = settings
        self._clock = clock
        self._turns = turns
        self._work = work
        self._askers: dict[str, None] = {}
        self._start: _Start | None = None
        self._step: Step | None = None
        self._channel: Channel | None = None
        self._followers: set[TrialSteps] = set()
        #: Whether a try failed since the server was last seen to answer, and took its time to.
        self.failed = False
        self.slow = False

    def wanted_by(self, asker: str) -> None:
        """Note who waits for the next start, or for the one that stands in the line."""
        self._askers[asker] = None
        if self._start is not None and self._start.turn is not None:
            self._start.turn.also_for(asker)

    def answered(self) -> None:
        """Forget the failures: the server has shown what it can do."""
        self.failed = self.slow = False

    @property
    def lags(self) -> bool:
        """Say whether the start under way is one that nobody should wait for."""
        return self._start is not None and self._start.lags

    @property
    def progress(self) -> str | None:
        """Return where the start under way stands, with the last line the server said."""
        return None if self._start is None else self._start.words()

    def standing(self) -> str:
        """Say how far it is, to who waited in vain."""
        words = self.progress
        return f"still connecting ({words}); that goes on" if words else "still connecting"

    def still_starting(self, last_error: str | None) -> StillStarting:
        """Return why nobody should wait for its tools."""
        words = self.progress or "it does not answer"
        failed = self.slow or self.failed
        before = f" (before that: {last_error})" if failed else ""
        return StillStarting(f"not there yet: {words}{before}; that goes on", hopeful=not failed)

    @contextmanager
    def followed_by(self, steps: TrialSteps) -> Generator[None]:
        """Tell somebody of the steps, from the one on that is being taken now."""
        if self._step is not None:
            steps.begin(self._step)
        self._followers.add(steps)
        try:
            yield
        finally:
            self._followers.discard(steps)

    def said(self) -> str:
        """Return the last that the server of the latest start said outside the protocol."""
        return "" if self._channel is None else self._channel.diagnosis()

    @property
    def confined(self) -> Standing | None:
        """How the server is confined, since it was last started."""
        return self._channel.standing if isinstance(self._channel, Confined) else None

    def _begin(self, step: Step) -> None:
        """Take a step; a connection that is made later on is no handshake."""
        if step == "handshake" and self._step not in ("start", "connect"):
            return
        self._step = step
        if self._start is not None:
            self._start.take(step)
        for steps in self._followers:
            steps.begin(step)

    async def open(
        self,
        record: ServerRecord,
        *,
        era_hint: Era | None,
        events: ClientEvents,
        inputs: InputHandler | None,
    ) -> McpClient:
        """Start a server and shake hands, or raise ServerUnavailable."""
        limit = min(start_timeout(record), self._settings.start_seconds)
        async with self._started(record) as start:
            deadline = asyncio.get_running_loop().time() + limit

            async def opening() -> McpClient:
                return await connect(
                    lambda channel_events: self._opened(start, channel_events),
                    deadline=deadline,
                    era_hint=era_hint,
                    events=replace(events, on_step=self._begin, on_said=start.hear),
                    inputs=inputs,
                )

            try:
                client = await start.opened(opening)
            except DeadlineExceeded as error:
                said = start.last_line()
                after = f"; it said: {said}" if said else ""
                text = f"no connection within {limit:g} s: {error}{after}"
                raise ServerUnavailable(text) from error
            except (RemoteError, MalformedReply) as error:
                raise ServerUnavailable(f"the handshake failed: {error}") from error
            except OSError as error:
                raise ServerUnavailable(f"the server could not be started: {error}") from error
        self._askers.clear()
        return client

    async def _opened(self, start: _Start, events: Events) -> Channel:
        channel = await self._open_channel(start.record, events)
        start.channel = self._channel = channel
        return channel

    @asynccontextmanager
    async def _started(self, record: ServerRecord) -> AsyncGenerator[_Start, None]:
        """Have a turn, and somebody to watch over it, for the time of one start."""
        turn = None
        if self._turns is not None and record.transport == "stdio":
            turn = self._turns.ask(*self._askers)
        self._start = start = _Start(record, turn, self._settings, self._clock, self._work)
        start.again = self.failed
        watch: asyncio.Task[None] | None = None
        try:
            if turn is not None:
                await turn.come()
            start.begin()
            watch = asyncio.get_running_loop().create_task(start.watch())
            yield start
        except BasculeError:
            self.failed = True
            self.slow = self.slow or start.outlasted or start.lasted(AGAIN_SECONDS)
            raise
        finally:
            self._start = self._step = None
            if turn is not None:
                turn.give_back()
            if watch is not None:
                watch.cancel()  # not waited for: whoever is cancelled here would lose a client


class _Start:
    """One start: when it began, when it last worked, what it said."""

    def __init__(
        self,
        record: ServerRecord,
        turn: Turn | None,
        settings: NodeSettings,
        clock: Clock,
        work: Work,
    ) -> None:
        self.record = record
        self.turn = turn
        self.channel: Channel | None = None
        #: Whether the start before it failed: lists go on from what is known.
        self.again = False
        self._clock = clock
        self._work = work
        self._fetches = record.stdio is not None and fetches(record.stdio)
        self._grace = settings.fetch_grace_seconds if self._fetches else settings.grace_seconds
        self._asked_at = clock.monotonic()
        self._began: float | None = None
        self._worked_at = 0.0
        self._worked = 0.0
        self._measured_at = 0.0
        self._said: str = ""
        #: The step that fetches, where that is one of its own, and what was said in it.
        self._apart = ""
        self._heard = ""

    def begin(self) -> None:
        """Count from now on."""
        self._began = self._worked_at = self._clock.monotonic()

    def take(self, step: Step) -> None:
        """Begin a step."""
        if step == "fetch":
            self._apart = "fetching"
        elif self._apart:
            self._apart, self._heard = "starting", ""

    def hear(self, words: str) -> None:
        """Keep what was said before there was a server."""
        self._heard = words

    @property
    def outlasted(self) -> bool:
        """Say whether it has lasted longer than anybody is made to wait."""
        return self.lasted(self._grace)

    def lasted(self, seconds: float) -> bool:
        """Say whether it has lasted that long, its turn not counted."""
        return self._began is not None and self._clock.monotonic() - self._began >= seconds

    @property
    def quiet(self) -> bool:
        """Say whether it has not worked for a while."""
        now = self._clock.monotonic()
        return self._began is not None and now - self._worked_at >= QUIET_SECONDS

    @property
    def lags(self) -> bool:
        """Say whether it has lasted long and does not work either, or is not the first to fail."""
        if self.again:  # the wait for its turn counts, too
            return self._clock.monotonic() - self._asked_at >= AGAIN_SECONDS
        return self.outlasted and self.quiet

    async def watch(self) -> None:
        """Look at it now and then, until the start is over."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            self._look()
            age = self._clock.monotonic() - (self._began or 0.0)
            if self.turn is not None and (self.quiet or age >= TURN_SECONDS):
                self.turn.give_back()

    def _look(self) -> None:
        said = self._heard if self.channel is None else self.channel.diagnosis()
        if said != self._said or self._works():
            self._said, self._worked_at = said, self._clock.monotonic()

    def _works(self) -> bool:
        """Say whether its processes used the processor since the last look."""
        if not isinstance(self.channel, LocalProcess):
            return False
        worked = self._work(self.channel.pid)
        if worked is None:  # nothing is known here: it may be at work until its turn is over
            return self._clock.monotonic() - (self._began or 0.0) < TURN_SECONDS
        now = self._clock.monotonic()
        works = worked - self._worked >= _WORK_SECONDS
        if works or now - self._measured_at >= QUIET_SECONDS:
            self._worked, self._measured_at = worked, now
        return works

    async def opened(self, opening: Callable[[], Awaitable[McpClient]]) -> McpClient:
        """Open; what does not come up from a launcher's cache is fetched, and the reverse."""
        try:
            client = await opening()
        except (ServerUnavailable, DeadlineExceeded) as error:
            late = isinstance(error, DeadlineExceeded)
            channel = self.channel
            another = isinstance(channel, Launched) and channel.another_way(late=late)
            if late or not another:  # late: the next start has time of its own
                raise
            client = await opening()
        if isinstance(self.channel, Launched):
            self.channel.came_up()
        return client

    def words(self) -> str:
        """Return where it stands, for people."""
        if self._began is None:
            return "waiting for its turn to start"
        doing = self._apart or ("fetching or starting" if self._fetches else "starting")
        said = self.last_line()
        return f"{doing}; it said: {said}" if said else doing

    def last_line(self) -> str:
        """Return the last line that the server said outside the protocol."""
        said = self._heard if self.channel is None else self.channel.diagnosis()
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return beginning(lines[-1], _LONGEST_WORD) if lines else ""
