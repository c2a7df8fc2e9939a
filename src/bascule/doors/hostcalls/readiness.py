"""``spear_epoll_*`` and ``spear_fd_ctl``: what is ready, and what a handle is.

Only the guest's thread looks at what is watched; the loop merely wakes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Final

import msgspec

from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.crossing import Crossing
from bascule.doors.hostcalls.guest import Guest
from bascule.doors.hostcalls.handles import (
    EPOLLERR,
    EPOLLHUP,
    EPOLLIN,
    EPOLLOUT,
    MOST_OPEN,
    Handle,
    Kind,
)
from bascule.doors.hostcalls.parameters import read_parameter
from bascule.model.json import JsonObject, is_array, is_object
from bascule.wire.strict_json import StrictJsonError, loads

_EVENTS: Final = {
    EPOLLIN: "EPOLLIN",
    EPOLLOUT: "EPOLLOUT",
    EPOLLERR: "EPOLLERR",
    EPOLLHUP: "EPOLLHUP",
}
_ALL_EVENTS: Final = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP
_ADD: Final = 1
_MODIFY: Final = 2
_DELETE: Final = 3
#: A number of a handle and its events, four bytes each.
_RECORD: Final = 8
_NONBLOCK: Final = "O_NONBLOCK"


class _Watched:
    """A handle that an epoll watches. Once it is closed, no more is kept than that it was."""

    def __init__(self, epoll: Epoll, handle: Handle, events: int) -> None:
        self.events = events
        self._epoll = epoll
        self._handle: Handle | None = handle
        handle.watch(self.told)

    def told(self) -> None:
        """Hear of a change, on any thread."""
        handle = self._handle
        if handle is not None and handle.is_closed:
            self._handle = None
        self._epoll.wake()

    @property
    def is_closed(self) -> bool:
        return self._handle is None

    def ready(self) -> int:
        """Return those of its events that are there."""
        handle = self._handle
        return (EPOLLHUP if handle is None else handle.poll_mask()) & self.events

    def forget(self) -> None:
        if self._handle is not None:
            self._handle.unwatch(self.told)


class Epoll(Handle):
    """Handles that a guest waits for together.

    One that is closed reports EPOLLHUP until it is taken out, as in Spear. Of those the oldest are
    forgotten when more are watched than can be open.
    """

    kind: ClassVar[Kind] = "Epoll"

    def __init__(self, crossing: Crossing) -> None:
        super().__init__()
        self._crossing = crossing
        self._watched: dict[int, _Watched] = {}
        self._waits: set[asyncio.Event] = set()

    def put(self, number: int, handle: Handle, events: int) -> None:
        """Watch a handle for some events, in place of others."""
        known = self._watched.get(number)
        if known is None:
            self._make_room()
            self._watched[number] = _Watched(self, handle, events)
        else:
            known.events = events
        self.wake()

    def remove(self, number: int) -> None:
        """Watch a handle no more; nothing happens if it is not watched."""
        known = self._watched.pop(number, None)
        if known is not None:
            known.forget()

    def ready(self) -> list[tuple[int, int]]:
        """Return who is ready for what, in the order of their numbers."""
        found = ((number, one.ready()) for number, one in sorted(self._watched.items()))
        return [(number, events) for number, events in found if events]

    def wait(self, milliseconds: int) -> list[tuple[int, int]]:
        """Return who is ready, as soon as anybody is; a negative time is for ever."""
        turn = asyncio.Event()
        self._waits.add(turn)
        try:
            return self._wait(turn, None if milliseconds < 0 else milliseconds / 1000)
        finally:
            self._waits.discard(turn)

    def _wait(self, turn: asyncio.Event, seconds: float | None) -> list[tuple[int, int]]:
        # A wait is told of every change since it began, so none falls between look and wait.
        while not (found := self.ready()):
            if self.is_closed:
                raise Fault(Errno.EBADF)
            if seconds == 0:
                break
            seconds = self._crossing.wait(partial(_change, turn, seconds))
        return found

    def wake(self) -> None:
        """Have whoever waits look again; from any thread."""
        for turn in tuple(self._waits):
            self._crossing.tell(turn.set)

    def close(self) -> None:
        for one in self._watched.values():
            one.forget()
        self._watched.clear()
        self.wake()

    def _make_room(self) -> None:
        if len(self._watched) >= MOST_OPEN:
            self.remove(next(number for number, one in self._watched.items() if one.is_closed))


async def _change(turn: asyncio.Event, seconds: float | None) -> float | None:
    """Wait for a change and return how much of the time is left."""
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    try:
        async with asyncio.timeout_at(until):
            await turn.wait()
    except TimeoutError:
        return 0.0
    turn.clear()
    return None if until is None else max(0.0, until - loop.time())


def spear_epoll_create(guest: Guest) -> int:
    return guest.handles.add(Epoll(guest.crossing))


def spear_epoll_ctl(guest: Guest, number: int, command: int, watched: int, events: int) -> int:
    if number == watched:
        raise Fault(Errno.EINVAL)
    epoll = guest.handles.find(number, Epoll)
    if command == _DELETE and guest.handles.was_given(watched):
        epoll.remove(watched)
        return 0
    handle = guest.handles.find(watched, Handle)
    if isinstance(handle, Epoll) or command not in {_ADD, _MODIFY}:
        raise Fault(Errno.EINVAL)
    epoll.put(watched, handle, events & _ALL_EVENTS)
    return 0


def spear_epoll_wait(
    guest: Guest, number: int, pointer: int, length_pointer: int, milliseconds: int
) -> int:
    epoll = guest.handles.find(number, Epoll)
    window = guest.memory.window(pointer, length_pointer)
    if window.capacity < _RECORD:
        guest.memory.write_u32(window.length_pointer, _RECORD)
        raise Fault(Errno.ENOSPC)
    found = epoll.wait(milliseconds)[: window.capacity // _RECORD]
    records = b"".join(
        number.to_bytes(4, "little") + events.to_bytes(4, "little") for number, events in found
    )
    guest.memory.answer(window, records)
    return len(found)


def spear_epoll_close(guest: Guest, number: int) -> int:
    if guest.handles.was_closed(number):
        return 0
    guest.handles.close(number, Epoll)
    return 0


def spear_fd_ctl(guest: Guest, number: int, command: int, pointer: int, length_pointer: int) -> int:
    handle = guest.handles.find(number, Handle)
    memory = guest.memory
    if command in _SETTERS:
        sent = memory.json(pointer, memory.u32(length_pointer))
        _SETTERS[command](handle, sent)
        return 0
    if command not in _GETTERS:
        raise Fault(Errno.EINVAL)
    return memory.answer(memory.window(pointer, length_pointer), _GETTERS[command](handle))


def _set_flags(handle: Handle, sent: bytes) -> None:
    """Set and clear flags; those that there are not change nothing, as in Spear."""
    try:
        found = loads(sent)
    except StrictJsonError:
        raise Fault(Errno.EINVAL) from None
    if not is_object(found):
        return
    for name, value in (("set", True), ("clear", False)):
        flags = found.get(name)
        if is_array(flags) and _NONBLOCK in flags:
            handle.nonblocking = value


def _set_param(handle: Handle, sent: bytes) -> None:
    handle.set_param(*read_parameter(sent))


def _flags(handle: Handle) -> JsonObject:
    return {"flags": [_NONBLOCK] if handle.nonblocking else []}


def _kind(handle: Handle) -> JsonObject:
    return {"kind": handle.kind}


def _status(handle: Handle) -> JsonObject:
    mask = handle.poll_mask()
    ready = [name for bit, name in _EVENTS.items() if mask & bit]
    return {**_kind(handle), **_flags(handle), "poll_mask": ready, "closed": False}


_SETTERS: Mapping[int, Callable[[Handle, bytes], None]] = {1: _set_flags, 6: _set_param}
_GETTERS: Mapping[int, Callable[[Handle], bytes]] = {
    2: lambda handle: msgspec.json.encode(_flags(handle)),
    3: lambda handle: msgspec.json.encode(_kind(handle)),
    4: lambda handle: msgspec.json.encode(_status(handle)),
    5: lambda handle: handle.metrics(),
}
