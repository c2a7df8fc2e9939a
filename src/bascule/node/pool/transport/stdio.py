"""A channel over the pipes of a local process.

Readiness callbacks and plain reads and writes on the pipes themselves: the fastest way on asyncio
and on uvloop alike, and the only one that knows whether a request's bytes have left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from math import inf

import msgspec

from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    MalformedReply,
    NotDelivered,
    OutcomeUnknown,
    RemoteError,
)
from bascule.lifetime import Tasks
from bascule.node.pool.process.spawn import ServerProcess
from bascule.node.pool.transport.channel import (
    NEVER_CANCELLED,
    Counters,
    Events,
    reply_to,
)
from bascule.node.pool.transport.lines import CHUNK, Drain, LineReader, LineWriter, Parcel
from bascule.node.pool.transport.restraint import (
    ALLOWANCE,
    BYTES_PER_UNIT,
    SLICE_SECONDS,
    Restraint,
)
from bascule.node.pool.transport.taps import LOG, PROGRESS, Tap, tell_progress, token_of
from bascule.wire import frames
from bascule.wire.era import Peer
from bascule.wire.frames import Broken, Fault, Frame, Notice, Reply, Request
from bascule.wire.strict_json import JsonValue, dumps

_LAST_READS = 64  # chunks still read from a process that has ended
_CLOCK_GRAIN = 0.001  # loops wake up to this much early


class StdioLimits(msgspec.Struct, frozen=True):
    """Hard caps of one channel.

    What the server says unasked is paid from ``allowance``, which ``restraint`` renews every
    ``slice_seconds``: ``frame_price`` for a frame, more for a long one. While it says much, log
    lines are dropped unread, at a price of one. Answers to our requests are free. A line over
    ``frame_bytes`` is dropped, and the connection with it unless its end comes within
    ``overlong_seconds``. ``waiting_bytes`` bounds what waits to be written without a caller.
    """

    frame_bytes: int = 8 * 1024 * 1024
    overlong_seconds: float = 1.0
    waiting_bytes: int = 16 * 1024 * 1024
    allowance: int = ALLOWANCE
    frame_price: int = 6
    slice_seconds: float = SLICE_SECONDS
    stderr_lines: int = 20
    stderr_bytes: int = 8192
    close_grace: float = 0.3


class _Call(Parcel, eq=False):
    """A request in flight: its bytes, and the future that its caller awaits."""

    id: int
    method: str
    deadline: float
    future: asyncio.Future[JsonValue]
    held: float

    def succeed(self, result: JsonValue) -> None:
        """Give the caller the result, if there still is one."""
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: BasculeError) -> None:
        """Tell the caller, if there still is one."""
        if not self.future.done():
            self.future.set_exception(error)


class StdioChannel:
    """One process, its three pipes, and the calls in flight. Made on a running loop.

    It owns the pipes, and ends the process when it is closed.
    """

    apart = False

    def __init__(
        self, process: ServerProcess, events: Events, limits: StdioLimits | None = None
    ) -> None:
        self._limits = limits or StdioLimits()
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._events = events
        self._stdout = process.stdout_fd
        self._open = {process.stdin_fd, process.stdout_fd, process.stderr_fd}
        self._calls: dict[int, _Call] = {}
        self._taps: dict[int, Tap] = {}
        self._last_id = 0
        #: Whether a request may still be answered.
        self.alive = True
        self.counters = Counters()
        self._backlog: list[bytes] = []
        self._restraint = Restraint(self._limits.allowance, self._limits.slice_seconds, self._loop)
        self._ending = False
        self._resuming: asyncio.Handle | None = None
        self._overlong: asyncio.TimerHandle | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf
        self._lines = LineReader(self._limits.frame_bytes)
        self._aside = Drain(
            self._loop,
            process.stderr_fd,
            lines=self._limits.stderr_lines,
            size=self._limits.stderr_bytes,
        )
        self._writer = LineWriter(
            self._loop,
            process.stdin_fd,
            limit=self._limits.waiting_bytes,
            on_broken=self._input_broken,
        )
        self._loop.add_reader(self._stdout, self._readable)
        self._aside.start()
        self._tasks = Tasks()
        self._tasks.start(self._until_exit())

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return len(self._calls)

    @property
    def waiting_bytes(self) -> int:
        """How much waits to be written."""
        return self._writer.waiting

    @property
    def stderr_bytes(self) -> int:
        """How much the server has written to its standard error."""
        return self._aside.total

    def diagnosis(self) -> str:
        """The last lines of the server's standard error."""
        return self._aside.text()

    def settle(self, peer: Peer) -> None:
        """Do nothing: pipes carry every version alike."""

    # -- out -------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: bytes,
        *,
        deadline: float,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        tap: Tap | None = None,
    ) -> JsonValue:
        """Send a request and wait for its result (see ``Channel``); pipes have no headers."""
        if not self.alive:
            raise NotDelivered("the connection is closed")
        if deadline <= self._loop.time():
            raise DeadlineExceeded(f"no time was left to send {method}")
        self._last_id = id = self._last_id + 1
        line, future = frames.request_line(id, method, params), self._loop.create_future()
        held = self._restraint.held
        call = _Call(line, False, id, method, deadline, future, held)  # noqa: FBT003 - hot path
        self._writer.write(call, among_many=bool(self._calls), awaited=True)
        self._calls[id] = call
        if deadline < self._alarm_at:
            self._set_alarm(deadline)
        if tap is not None:
            self._taps[tap.token] = tap
        try:
            return await call.future
        except asyncio.CancelledError:
            self._forsake(call)
            raise
        finally:
            if tap is not None:
                del self._taps[tap.token]

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification, or drop it when the server does not read."""
        self._send(frames.notification(method, params))

    async def close(self) -> None:
        """Close the pipes and end the process; calls in flight fail."""
        self._stop("the connection was closed")
        try:
            await self._process.end(self._limits.close_grace)
        finally:
            await self._tasks.end()
            self._shut(self._stdout)
            self._shut(self._process.stderr_fd)

    def _set_alarm(self, at: float) -> None:
        """One timer for all calls: one each would cost more than the rest of the bookkeeping."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._loop.call_at(at, self._expire_calls)

    def _expire_calls(self) -> None:
        """End the calls whose time is up, and wake again for the next; often there is none."""
        self._alarm = None
        self._alarm_at = inf
        now = self._loop.time() + _CLOCK_GRAIN
        for call in [call for call in self._calls.values() if call.deadline <= now]:
            self._expire(call)
        if self._calls:
            self._set_alarm(min(call.deadline for call in self._calls.values()))

    def _expire(self, call: _Call) -> None:
        del self._calls[call.id]
        if call.sent:
            self._tell_cancelled(call, "the deadline has passed")
            why = self._restraint.excuse(call.held)
            call.fail(DeadlineExceeded(f"no answer to {call.method} in time{why}"))
        else:
            self._writer.withdraw(call)
            call.fail(
                NotDelivered(f"the server does not read its input: no {call.method} was sent")
            )

    def _forsake(self, call: _Call) -> None:
        """The caller was cancelled: so is the call, wherever it is."""
        if not call.future.cancelled() and call.future.done():
            call.future.exception()  # seen, though nobody is left to be told
        if self._calls.pop(call.id, None) is None:
            return
        if call.sent:
            self._tell_cancelled(call, "the caller gave up")
        else:
            self._writer.withdraw(call)

    def _tell_cancelled(self, call: _Call, reason: str) -> None:
        if call.method not in NEVER_CANCELLED:
            self.notify("notifications/cancelled", dumps({"requestId": call.id, "reason": reason}))

    def _send(self, frame: bytes) -> None:
        """Send what nobody waits for; a server that does not read misses it."""
        if self.alive:
            with contextlib.suppress(NotDelivered):
                self._writer.write(Parcel(_line(frame), sent=False))

    # -- in --------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            data = os.read(self._stdout, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._restraint.read()
            self._take(self._lines.feed(data))
        else:
            self._lose("the server closed its output")

    def _take(self, lines: list[bytes]) -> None:
        calls, cap, restraint = self._calls, self._limits.frame_bytes, self._restraint
        logs = self._events.logs
        for index, line in enumerate(lines):
            if restraint.hurried and not logs.listeners and line.startswith(frames.LOG_HEADS):
                self.counters.unheard += 1
                restraint.spent += 1
            else:
                frame = frames.read(line, cap)
                if type(frame) is Reply and frame.id in calls:
                    future = calls.pop(frame.id).future
                    if not future.done():
                        future.set_result(frame.result)
                    continue
                self._take_frame(frame, line)
            if restraint.exhausted and not self._ending:
                self._backlog = lines[index + 1 :]
                self._pause()
                return
        if self._lines.skipping or self._overlong is not None:
            self._watch_overlong()

    def _take_frame(self, frame: Frame, line: bytes) -> None:
        if type(frame) is Reply:
            call = self._claim(frame.id)
            if call is not None:
                call.succeed(frame.result)
        elif type(frame) is Fault:
            self._take_fault(frame)
        elif type(frame) is Broken:
            self._take_broken(frame)
        else:
            self._restraint.spent += self._limits.frame_price + len(line) // BYTES_PER_UNIT
            self._take_unasked(frame, line)

    def _claim(self, id: int) -> _Call | None:
        """The call that an answer is for; an answer for nobody is counted and forgotten."""
        call = self._calls.pop(id, None)
        if call is None:
            self._restraint.spent += self._limits.frame_price
            if 0 < id <= self._last_id:
                self.counters.late += 1
            else:
                self.counters.foreign += 1
        return call

    def _take_fault(self, fault: Fault) -> None:
        if fault.id is None:
            # The server could not even read the id of what it refuses. With one call in flight
            # it is that one; otherwise it could be any, and their deadlines stand.
            id = next(iter(self._calls)) if len(self._calls) == 1 else 0
        else:
            id = fault.id
        call = self._claim(id)
        if call is not None:
            call.fail(RemoteError(fault.code, fault.message, fault.data))

    def _take_broken(self, broken: Broken) -> None:
        self.counters.broken += 1
        error = f"the answer cannot be read: {broken.reason}"
        if broken.id is not None:
            call = self._claim(broken.id)
            if call is not None:
                call.fail(MalformedReply(error))
            return
        self._restraint.spent += self._limits.frame_price
        calls = self._taken()
        alone = sum(call.sent for call in calls) == 1
        for call in calls:
            if call.sent:
                unknown = OutcomeUnknown(f"{error}; it may be anybody's")
                call.fail(MalformedReply(error) if alone else unknown)
            else:
                self._calls[call.id] = call

    def _take_unasked(self, frame: Frame, line: bytes) -> None:
        if type(frame) is Notice:
            self.counters.notices += 1
            self._take_notice(frame.method, frame.params)
        elif type(frame) is Request:
            self._loop.call_soon(self._answer, frame)
        elif line.startswith(b"[") and (batch := frames.read_batch(line)):
            for inner in batch:
                self._take_frame(inner, b"-")
        elif line.strip():
            self.counters.noise += 1

    def _take_notice(self, method: str, params: JsonValue) -> None:
        """Pass it on through the loop: what a listener does cannot harm the reading."""
        if method == PROGRESS:
            if token_of(params) in self._taps:
                self._loop.call_soon(self._tell_progress, params)
        elif method != LOG:
            self._loop.call_soon(self._events.on_notification, method, params)
        elif self._events.logs.listeners:
            self._loop.call_soon(self._events.logs.tell, params)

    def _tell_progress(self, params: JsonValue) -> None:
        """Tell of progress, unless the call was answered since it was read."""
        tell_progress(self._taps.get(token_of(params) or 0), params)

    def _answer(self, request: Request) -> None:
        """Answer in a task of its own: whoever is asked may take time."""
        self.counters.refused += request.method != "ping" and self._events.on_request is None
        self._tasks.start(self._reply(request))

    async def _reply(self, request: Request) -> None:
        self._send(await reply_to(request, self._events))

    # -- restraint -------------------------------------------------------------------------

    def _pause(self) -> None:
        """Let the loop turn before more is read."""
        self.counters.pauses += 1
        self._loop.remove_reader(self._stdout)
        wait = self._restraint.pause()
        if wait:
            self._resuming = self._loop.call_later(wait, self._resume, wait)
        else:
            self._resuming = self._loop.call_soon(self._resume, wait)

    def _resume(self, waited: float) -> None:
        self._resuming = None
        held = self._restraint.resume(waited)
        if held:
            self._events.on_pause(held)
        backlog, self._backlog = self._backlog, []
        self._take(backlog)
        if self.alive and self._resuming is None:
            self._restraint.hurried = False
            self._loop.add_reader(self._stdout, self._readable)

    def _watch_overlong(self) -> None:
        """Give a line over the cap some time to end; its own call need not wait for that."""
        head = self._lines.overlong
        if head is not None:
            self._lines.overlong = None
            self._take_frame(frames.unreadable(head, "a line over the cap"), head)
            if self._overlong is None:
                delay = self._limits.overlong_seconds
                self._overlong = self._loop.call_later(delay, self._lose, "a line without end")
        elif self._overlong is not None and not self._lines.skipping:
            self._overlong.cancel()
            self._overlong = None

    # -- the end ---------------------------------------------------------------------------

    async def _until_exit(self) -> None:
        """See the process end even when a grandchild keeps its pipes open."""
        status = await self._process.wait()
        self._read_the_rest()
        self._lose(self._process.excess or f"the server ended with status {status}")

    def _input_broken(self) -> None:
        """The server closed its input: nothing more can be asked, but answers may be waiting."""
        self._read_the_rest()
        self._lose("the server closed its input")

    def _read_the_rest(self) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
        self._ending = True  # no pause now: there is little left, and all of it counts
        backlog, self._backlog = self._backlog, []
        self._take(backlog)
        for _ in range(_LAST_READS):
            if not self.alive:
                return
            self._readable()

    def _lose(self, reason: str) -> None:
        if self.alive:
            self._stop(reason)
            self._events.on_closed(reason)

    def _stop(self, reason: str) -> None:
        """Let go of the pipes, and of every call: each is told whether it had left."""
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._stdout)
        for timer in (self._resuming, self._overlong, self._alarm):
            if timer is not None:
                timer.cancel()
        self._writer.close()
        self._shut(self._process.stdin_fd)
        calls = self._taken()
        for call in calls:
            if call.sent:
                call.fail(OutcomeUnknown(f"{reason} before {call.method} was answered"))
            else:
                call.fail(NotDelivered(f"{reason} before {call.method} was sent"))

    def _taken(self) -> list[_Call]:
        """Take every call out of the table, which stays the same one."""
        calls = list(self._calls.values())
        self._calls.clear()
        return calls

    def _shut(self, fd: int) -> None:
        """Close a pipe once: its number may be another's a moment later."""
        if fd in self._open:
            self._open.remove(fd)
            if fd == self._process.stderr_fd:
                self._aside.stop()
            self._loop.remove_reader(fd)
            os.close(fd)


def _line(frame: bytes) -> bytes:
    """End a frame as a line. One that holds a break would be read as two."""
    if 0x0A in frame or 0x0D in frame:
        raise ValueError("a frame may not hold a line break")
    return frame + b"\n"
