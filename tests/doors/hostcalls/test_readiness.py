"""What is ready, and what a handle is: spear_epoll_* and spear_fd_ctl."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable
from typing import ClassVar

import msgspec
import pytest

from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.crossing import Crossing, Ended
from bascule.doors.hostcalls.handles import (
    EPOLLERR,
    EPOLLHUP,
    EPOLLIN,
    EPOLLOUT,
    MOST_OPEN,
    Handle,
    Handles,
    Kind,
)
from bascule.doors.hostcalls.host import GuestLimits
from bascule.doors.hostcalls.readiness import Epoll
from tests.doors.hostcalls.running import PATIENT, run_wat
from tests.doors.hostcalls.wat import call, guest

ADD, MOD, DEL = 1, 2, 3
SET_FLAGS, GET_FLAGS, GET_KIND, GET_STATUS, GET_METRICS, SET_PARAM = range(1, 7)
OUT, LENGTH = 256, 128


class Door(Handle):
    """A handle whose readiness a test sets."""

    kind: ClassVar[Kind] = "ChatResponse"
    mask = 0

    def poll_mask(self) -> int:
        return self.mask

    def becomes(self, mask: int) -> None:
        self.mask = mask
        self.changed()


class Watching:
    """An epoll with doors, waited on from a thread as a guest's is."""

    def __init__(self) -> None:
        self.crossing = Crossing(asyncio.get_running_loop(), lambda: False)
        self.handles = Handles()
        self.epoll = Epoll(self.crossing)
        self.handles.add(self.epoll)
        self.waits = asyncio.Event()

    def door(self, mask: int = 0, events: int = EPOLLIN | EPOLLHUP) -> tuple[int, Door]:
        door = Door()
        door.mask = mask
        number = self.handles.add(door)
        self.epoll.put(number, door, events)
        return number, door

    async def wait(self, milliseconds: int = -1) -> list[tuple[int, int]]:
        async with asyncio.timeout(PATIENT):
            return await asyncio.to_thread(self.epoll.wait, milliseconds)

    async def while_waiting(self, act: Callable[[], None]) -> list[tuple[int, int]]:
        """Wait, and do something on the guest's thread once the wait has begun."""
        waiting = asyncio.create_task(self.wait())
        async with asyncio.timeout(PATIENT):
            await self.crossing.enter(act)
        return await waiting


@pytest.mark.requirement("hostcalls:epoll")
async def test_handles_that_are_ready_are_told_in_their_order_and_once():
    watching = Watching()
    first, _ = watching.door(EPOLLIN | EPOLLOUT)
    watching.door(0)
    third, door = watching.door(EPOLLIN)
    watching.epoll.put(third, door, EPOLLIN)
    assert await watching.wait() == [(first, EPOLLIN), (third, EPOLLIN)]


async def test_a_wait_ends_when_a_handle_becomes_ready_on_the_loop():
    watching = Watching()
    number, door = watching.door()
    waiting = asyncio.create_task(watching.wait())
    await watching.crossing.enter(lambda: None)  # the thread waits by now
    door.becomes(EPOLLIN)
    assert await waiting == [(number, EPOLLIN)]


async def test_a_change_between_two_looks_is_not_lost():
    """The thread looks, sees nothing, and the change comes before it waits."""

    class Late(Door):
        def poll_mask(self) -> int:
            found, self.mask = self.mask, EPOLLIN
            if not found:
                told = threading.Thread(target=self.changed)
                told.start()
                told.join()
            return found

    watching = Watching()
    number = watching.handles.add(late := Late())
    watching.epoll.put(number, late, EPOLLIN)
    assert await watching.wait() == [(number, EPOLLIN)]


async def test_a_change_that_leaves_nothing_ready_is_waited_through():
    watching = Watching()
    number, door = watching.door()

    def change() -> None:
        door.becomes(EPOLLOUT)
        door.becomes(EPOLLIN)

    assert await watching.while_waiting(change) == [(number, EPOLLIN)]


async def test_a_handle_added_during_a_wait_ends_it():
    watching = Watching()
    found = await watching.while_waiting(lambda: watching.door(EPOLLIN) and None)
    assert [events for _, events in found] == [EPOLLIN]


async def test_a_closed_handle_hangs_up_until_it_is_taken_out():
    watching = Watching()
    number, _ = watching.door()
    found = await watching.while_waiting(lambda: watching.handles.close(number, Door))
    assert found == [(number, EPOLLHUP)]
    assert await watching.wait() == [(number, EPOLLHUP)]
    watching.epoll.remove(number)
    assert await watching.wait(0) == []


async def test_a_closed_handle_tells_only_those_who_asked_for_it():
    watching = Watching()
    number, _ = watching.door(events=EPOLLIN)
    watching.handles.close(number, Door)
    assert await watching.wait(0) == []


async def test_an_epoll_remembers_no_more_closed_handles_than_can_be_open():
    watching = Watching()
    numbers = [watching.door()[0]]
    for _ in range(MOST_OPEN + 10):
        numbers.append(watching.door()[0])
        watching.handles.close(numbers.pop(0), Door)
    found = await watching.wait()
    assert len(found) == MOST_OPEN - 1
    assert found[-1] == (numbers[0] - 1, EPOLLHUP)


async def test_closing_an_epoll_that_is_waited_on_ends_the_wait():
    watching = Watching()
    with pytest.raises(Fault) as ended:
        await watching.while_waiting(lambda: watching.handles.close(1000, Epoll))
    assert ended.value.errno == Errno.EBADF


async def test_a_guest_that_ends_leaves_its_wait():
    watching = Watching()
    waiting = asyncio.create_task(watching.wait())
    await watching.crossing.enter(lambda: None)
    watching.crossing.end()
    with pytest.raises(Ended):
        await waiting


async def test_a_closed_epoll_watches_nobody():
    watching = Watching()
    _, door = watching.door()
    watching.handles.close(1000, Epoll)
    assert not door._watchers  # pyright: ignore[reportPrivateUsage]


async def test_a_guest_waits_no_longer_than_it_said():
    ran = await run_wat(
        guest(
            call("spear_epoll_create"),
            call("spear_epoll_wait", "$0", OUT, LENGTH, 0),
            call("spear_epoll_wait", "$0", OUT, LENGTH, 5),
            data={LENGTH: 64},
            shown=(LENGTH, 4),
        )
    )
    # The first wait wrote that there was nothing, so there is no room for the second.
    assert ran.answers == [1000, 0, -Errno.ENOSPC]
    assert ran.stdout == struct.pack("<I", 8)


async def test_a_guest_that_waits_for_ever_ends_with_its_time():
    ran = await run_wat(
        guest(
            call("spear_epoll_create"),
            call("spear_epoll_wait", "$0", OUT, LENGTH, -1),
            data={LENGTH: 64},
        ),
        limits=GuestLimits(seconds=0.05),
    )
    assert ran.exit.reason == "timeout"


async def test_what_epoll_refuses():
    ran = await run_wat(
        guest(
            call("spear_epoll_create"),
            call("spear_epoll_create"),
            call("spear_epoll_ctl", "$0", ADD, "$0", 1),
            call("spear_epoll_ctl", "$0", ADD, "$1", 1),
            call("spear_epoll_ctl", "$0", ADD, 1002, 1),
            call("spear_epoll_ctl", 7, ADD, "$1", 1),
            call("spear_epoll_ctl", "$0", 9, "$1", 1),
            call("spear_epoll_ctl", "$0", DEL, 1002, 1),
            call("spear_epoll_wait", 1002, OUT, LENGTH, 0),
            call("spear_epoll_wait", "$0", 65_530, LENGTH, 0),
            call("spear_epoll_wait", "$0", OUT, 65_533, 0),
            call("spear_epoll_close", 1002),
            data={LENGTH: 64},
        )
    )
    bad_fd, fault, invalid = -Errno.EBADF, -Errno.EFAULT, -Errno.EINVAL
    assert ran.answers[2:] == [
        *(invalid, invalid, bad_fd, bad_fd, invalid, bad_fd),
        *(bad_fd, fault, fault, bad_fd),
    ]


async def test_closing_twice_is_nothing_and_a_closed_one_can_be_taken_out():
    ran = await run_wat(
        guest(
            call("spear_epoll_create"),
            call("spear_epoll_create"),
            call("spear_epoll_close", "$0"),
            call("spear_epoll_close", "$0"),
            call("spear_epoll_ctl", "$1", DEL, "$0", 0),
            call("spear_epoll_ctl", "$1", ADD, "$0", 0),
            call("spear_fd_ctl", "$0", GET_KIND, OUT, LENGTH),
        )
    )
    assert ran.answers == [1000, 1001, 0, 0, 0, -Errno.EBADF, -Errno.EBADF]


@pytest.mark.requirement("hostcalls:epoll")
@pytest.mark.parametrize(
    ("command", "told"),
    [
        (GET_FLAGS, {"flags": ["O_NONBLOCK"]}),
        (GET_KIND, {"kind": "Epoll"}),
        (
            GET_STATUS,
            {"kind": "Epoll", "flags": ["O_NONBLOCK"], "poll_mask": [], "closed": False},
        ),
        (GET_METRICS, {}),
    ],
)
async def test_a_handle_says_what_it_is(command: int, told: dict[str, object]):
    flags = b'{"set": ["O_NONBLOCK", "O_FOREIGN", 7], "clear": []}'
    ran = await run_wat(
        guest(
            call("spear_epoll_create"),
            call("spear_fd_ctl", "$0", SET_FLAGS, 512, 124),
            call("spear_fd_ctl", "$0", command, OUT, LENGTH),
            data={512: flags, 124: len(flags), LENGTH: 200},
            shown=(OUT, 200),
        )
    )
    assert ran.answers[1] == 0
    assert msgspec.json.decode(ran.stdout[: ran.answers[2]]) == told


@pytest.mark.parametrize(
    ("command", "sent", "errno"),
    [
        (SET_FLAGS, b'{"set": "O_NONBLOCK"}', 0),
        (SET_FLAGS, b"[]", 0),
        (SET_FLAGS, b"{", Errno.EINVAL),
        (SET_FLAGS, b"\xff", Errno.EINVAL),
        (SET_FLAGS, b"[" * 20_000, Errno.EINVAL),
        (SET_PARAM, b'{"key": "a", "value": 1}', Errno.EINVAL),  # an epoll has no parameters
        (SET_PARAM, b'{"key": "", "value": 1}', Errno.EIO),
        (SET_PARAM, b'{"value": 1}', Errno.EIO),
        (SET_PARAM, b"", Errno.EIO),
        (7, b"{}", Errno.EINVAL),
        (0, b"{}", Errno.EINVAL),
    ],
)
async def test_what_a_handle_is_told(command: int, sent: bytes, errno: int):
    ran = await run_wat(
        guest(
            call("spear_epoll_create"),
            call("spear_fd_ctl", "$0", command, 512, 124),
            data={512: sent, 124: len(sent)},
        )
    )
    assert ran.answers == [1000, -errno]


async def test_a_status_names_every_event():
    watching = Watching()
    everything = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP
    _, door = watching.door(everything, everything)
    assert await watching.wait() == [(1001, everything)]
    door.becomes(0)
    assert await watching.wait(0) == []
