"""WASI preview 1 as guests have it: streams, clocks and waits, and nothing of the host's."""

from __future__ import annotations

import os
import struct
from typing import Any

import pytest

from bascule.clock import SystemClock
from bascule.doors.hostcalls import wasi
from bascule.doors.hostcalls.host import GuestLimits, Output
from tests.doors.hostcalls.running import Ran, run_wat
from tests.doors.hostcalls.wat import call, guest

SUBSCRIPTIONS, EVENTS, FOUND = 1024, 4096, 8192
CLOCK, READ, WRITE = 0, 1, 2
REALTIME, MONOTONIC, CPU = 0, 1, 2


class Standing(SystemClock):
    """A clock that stands still, writes down how long it was asked to sleep, and does not."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1000.0

    def monotonic(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 50.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def timer(
    userdata: int, seconds: float, clock: int = MONOTONIC, *, absolute: bool = False
) -> bytes:
    nanoseconds = int(seconds * 1_000_000_000)
    return struct.pack("<QBxxxxxxxIxxxxQQHxxxxxx", userdata, CLOCK, clock, nanoseconds, 0, absolute)


def ready(userdata: int, kind: int, fd: int) -> bytes:
    return struct.pack("<QBxxxxxxxI28x", userdata, kind, fd)


def events(ran: Ran) -> list[tuple[int, int, int, int]]:
    """Return userdata, error, kind and flags of each event."""
    return [
        (one[0], one[1], one[2], one[4])
        for one in struct.iter_unpack("<QHBxxxxxQHxxxxxx", ran.stdout)
    ]


async def poll(*subscriptions: bytes, count: int = 1, **host: Any) -> Ran:
    return await run_wat(
        guest(
            call("wasi.poll_oneoff", SUBSCRIPTIONS, EVENTS, len(subscriptions), FOUND),
            data={SUBSCRIPTIONS: b"".join(subscriptions)},
            shown=(EVENTS, 32 * count),
        ),
        **host,
    )


async def test_a_wait_lasts_until_the_first_of_its_times():
    clock = Standing()
    ran = await poll(timer(7, 3), timer(8, 2), timer(9, 5), clock=clock)
    assert clock.slept == [2.0]
    assert events(ran) == [(8, 0, CLOCK, 0)]


async def test_times_that_come_together_are_told_together():
    ran = await poll(timer(7, 2), timer(8, 2), count=2, clock=Standing())
    assert events(ran) == [(7, 0, CLOCK, 0), (8, 0, CLOCK, 0)]


@pytest.mark.parametrize(
    ("at", "clock", "slept"),
    [
        (1004.0, REALTIME, [4.0]),
        (52.0, MONOTONIC, [2.0]),
        (3.0, REALTIME, []),
        (0.0, MONOTONIC, []),
    ],
)
async def test_an_absolute_time_is_one_of_the_clock_that_the_guest_reads(
    at: float, clock: int, slept: list[float]
):
    standing = Standing()
    ran = await poll(timer(7, at, clock, absolute=True), clock=standing)
    assert standing.slept == slept
    assert events(ran) == [(7, 0, CLOCK, 0)]


async def test_what_is_there_at_once_is_not_waited_for():
    clock = Standing()
    ran = await poll(
        timer(1, 60),
        ready(2, WRITE, 1),
        ready(3, WRITE, 2),
        ready(4, READ, 0),
        count=3,
        clock=clock,
    )
    assert clock.slept == []
    assert events(ran) == [(2, 0, WRITE, 0), (3, 0, WRITE, 0), (4, 0, READ, 1)]


async def test_what_will_never_be_there_is_an_error_event():
    ran = await poll(
        ready(1, READ, 1),
        ready(2, WRITE, 0),
        ready(3, WRITE, 3),
        ready(4, 9, 1),
        timer(5, 60, CPU),
        count=5,
        clock=Standing(),
    )
    assert [(one, error) for one, error, _, _ in events(ran)] == [
        *((1, wasi.EBADF), (2, wasi.EBADF), (3, wasi.EBADF)),
        *((4, wasi.EINVAL), (5, wasi.EINVAL)),
    ]


async def test_a_wait_ends_with_the_guest():
    ran = await poll(timer(1, 3600), limits=GuestLimits(seconds=0.05))
    assert ran.exit.reason == "timeout"
    assert ran.stderr == b""


@pytest.mark.parametrize(
    ("numbers", "errno"),
    [
        ((SUBSCRIPTIONS, EVENTS, 0, FOUND), wasi.EINVAL),
        ((SUBSCRIPTIONS, EVENTS, 1_000_000, FOUND), wasi.EINVAL),
        ((SUBSCRIPTIONS, EVENTS, -1, FOUND), wasi.EINVAL),
        ((65_500, EVENTS, 1, FOUND), wasi.EFAULT),
        ((SUBSCRIPTIONS, 65_530, 1, FOUND), wasi.EFAULT),
        ((SUBSCRIPTIONS, EVENTS, 1, 65_534), wasi.EFAULT),
        ((-8, EVENTS, 1, FOUND), wasi.EFAULT),
    ],
)
async def test_a_wait_with_bad_pointers_does_not_wait(numbers: tuple[int, ...], errno: int):
    clock = Standing()
    ran = await run_wat(
        guest(call("wasi.poll_oneoff", *numbers), data={SUBSCRIPTIONS: timer(1, 5)}), clock=clock
    )
    assert ran.answers == [errno]
    assert clock.slept == []


@pytest.mark.parametrize(
    ("fd", "vectors", "errno"),
    [
        (0, struct.pack("<II", 64, 5), wasi.EBADF),
        (3, struct.pack("<II", 64, 5), wasi.EBADF),
        (1, struct.pack("<II", 65_535, 2), wasi.EFAULT),
        (1, struct.pack("<II", 64, 0xFFFF_FFFF), wasi.EFAULT),
        (1, struct.pack("<II", 0xFFFF_FFFF, 2), wasi.EFAULT),
    ],
)
async def test_a_write_that_cannot_be_says_why_in_wasis_numbers(
    fd: int, vectors: bytes, errno: int
):
    ran = await run_wat(
        guest(call("wasi.fd_write", fd, 1024, len(vectors) // 8, FOUND), data={1024: vectors})
    )
    assert ran.answers == [errno]
    assert ran.stdout == b""


async def test_a_write_whose_length_cannot_be_told_is_not_made():
    ran = await run_wat(
        guest(
            call("wasi.fd_write", 1, 1024, 1, 65_533),
            data={64: b"hello", 1024: struct.pack("<II", 64, 5)},
        )
    )
    assert ran.answers == [wasi.EFAULT]
    assert ran.stdout == b""


async def test_a_write_gathers_its_pieces_and_is_heard_once():
    ran = await run_wat(
        guest(
            call("wasi.fd_write", 1, 1024, 3, FOUND),
            data={64: b"hello, you", 1024: struct.pack("<IIIIII", 64, 5, 0, 0, 69, 5)},
        )
    )
    assert ran.heard[0] == Output("stdout", b"hello, you")


async def test_a_huge_write_is_a_short_one():
    """1,024 vectors of a whole memory each: the host does not gather them all."""
    vectors = struct.pack("<II", 0, 20 * 65_536) * 1024
    ran = await run_wat(
        guest(call("wasi.fd_write", 1, 1024, 1024, FOUND), data={1024: vectors}, pages=20)
    )
    assert ran.answers == [0]
    assert len(ran.stdout) == 1024 * 1024


@pytest.mark.requirement("hostcalls:wasi")
@pytest.mark.parametrize(
    ("name", "numbers", "errno"),
    [
        ("fd_read", (0, 1024, 1, FOUND), 0),
        ("fd_read", (1, 1024, 1, FOUND), wasi.EBADF),
        ("fd_read", (0, 1024, 1, -2), wasi.EFAULT),
        ("fd_pread", (0, 1024, 1, 0, FOUND), wasi.ESPIPE),
        ("fd_pwrite", (1, 1024, 1, 0, FOUND), wasi.ESPIPE),
        ("fd_seek", (1, 0, 0, FOUND), wasi.ESPIPE),
        ("fd_prestat_get", (3, FOUND), wasi.EBADF),
        ("path_open", (3, 0, 64, 1, 0, 0, 0, 0, FOUND), wasi.EBADF),
        ("path_unlink_file", (3, 64, 1), wasi.EBADF),
        ("fd_readdir", (3, 64, 100, 0, FOUND), wasi.EBADF),
        ("sock_accept", (3, 0, FOUND), wasi.EBADF),
        ("sock_recv", (0, 1024, 1, 0, FOUND, FOUND), wasi.ENOTSOCK),
        ("sock_send", (1, 1024, 1, 0, FOUND), wasi.ENOTSOCK),
        ("sock_shutdown", (4, 1), wasi.EBADF),
        ("sched_yield", (), 0),
        ("proc_raise", (9,), wasi.ENOSYS),
        ("clock_res_get", (MONOTONIC, FOUND), 0),
        ("clock_time_get", (CPU, 0, FOUND), wasi.EINVAL),
        ("fd_close", (1,), 0),
        ("fd_fdstat_get", (1, FOUND), 0),
        ("fd_fdstat_get", (3, FOUND), wasi.EBADF),
        ("fd_filestat_get", (2, FOUND), 0),
        ("random_get", (65_530, 7), wasi.EFAULT),
        ("random_get", (0, -1), wasi.EFAULT),
    ],
)
async def test_there_is_no_file_no_socket_and_no_input(
    name: str, numbers: tuple[int, ...], errno: int
):
    ran = await run_wat(
        guest(call(f"wasi.{name}", *numbers), data={1024: struct.pack("<II", 0, 9)})
    )
    assert ran.answers == [errno]


async def test_every_call_of_preview_1_can_be_imported():
    calls = [
        call(f"wasi.{name}", *[0] * (len(letters) - 1))
        for name, letters in wasi.IMPORTS.items()
        if name != "proc_exit"
    ]
    assert len(calls) == 45
    ran = await run_wat(guest(*calls))
    assert len(ran.answers) == 45


async def test_a_guest_has_the_arguments_and_environment_that_it_was_given():
    ran = await run_wat(
        guest(
            call("wasi.args_sizes_get", 0, 4),
            call("wasi.args_get", 16, 64),
            call("wasi.environ_sizes_get", 8, 12),
            call("wasi.environ_get", 32, 128),
            shown=(0, 160),
        ),
        args=("é", "two"),
        env=(("A", "1"), ("B", "x=y")),
    )
    assert struct.unpack_from("<IIII", ran.stdout) == (3, 13, 2, 10)
    assert struct.unpack_from("<III", ran.stdout, 16) == (64, 70, 73)
    assert ran.stdout[64:77] == "guest\0é\0two\0".encode()
    assert ran.stdout[128:138] == b"A=1\0B=x=y\0"


@pytest.mark.requirement("hostcalls:wasi")
async def test_nothing_of_the_hosts_environment_reaches_a_guest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CANARY", "of the host")
    assert os.environ["CANARY"]
    ran = await run_wat(guest(call("wasi.environ_sizes_get", 0, 4), shown=(0, 8)))
    assert ran.stdout == bytes(8)


async def test_chance_fills_exactly_what_was_asked_for():
    ran = await run_wat(guest(call("wasi.random_get", 16, 200_000), shown=(0, 200_032), pages=5))
    assert ran.stdout[:16] == bytes(16)
    assert ran.stdout[200_016:] == bytes(16)
    assert len(set(ran.stdout[16:200_016])) == 256


async def test_an_exit_ends_the_guest_at_once_with_its_code():
    ran = await run_wat(guest(call("wasi.proc_exit", 7), call("log", 2, 0, 0)))
    assert (ran.exit.reason, ran.exit.code) == ("exited", 7)
    assert ran.heard == []
