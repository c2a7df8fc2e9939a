"""Host calls that need nobody else: time, chance, sleep and the log."""

from __future__ import annotations

import secrets

from bascule.doors.hostcalls.abi import MASK, Errno, Fault
from bascule.doors.hostcalls.guest import Guest
from bascule.doors.hostcalls.host import LogLevel, LogLine

_LONGEST_LINE = 16_384
_LEVELS: tuple[LogLevel, ...] = ("trace", "debug", "info", "warn", "error")


def time_now_ms(guest: Guest) -> int:
    return int(guest.host.clock.now() * 1000)


def wall_time_s(guest: Guest) -> int:
    return int(guest.host.clock.now())


def random_i64(_guest: Guest) -> int:
    return int.from_bytes(secrets.token_bytes(8), "little", signed=True)


def sleep_ms(guest: Guest, milliseconds: int) -> None:
    seconds = (milliseconds & MASK) / 1000
    guest.crossing.wait(lambda: guest.host.clock.sleep(seconds))


def log(guest: Guest, level: int, pointer: int, length: int) -> int:
    if length & MASK > _LONGEST_LINE:
        raise Fault(Errno.EINVAL)
    text = guest.memory.read(pointer, length).decode("utf-8", "replace")
    name = _LEVELS[level] if 0 <= level < len(_LEVELS) else "info"
    guest.say(LogLine(name, text))
    return 0
