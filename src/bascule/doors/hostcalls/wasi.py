"""WASI preview 1: arguments, an environment, clocks, chance, and two streams to write to.

There is no directory, no socket, no input and nothing of the host's. The engine's own WASI is not
used, because what waits there ends by no epoch. Error numbers are WASI's, returned as they are.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from bascule.doors.hostcalls.abi import MASK, Errno
from bascule.doors.hostcalls.crossing import Ended
from bascule.doors.hostcalls.guest import Guest
from bascule.doors.hostcalls.host import Output, Stream

MODULE: Final = "wasi_snapshot_preview1"
EBADF: Final = 8
EFAULT: Final = 21
EINVAL: Final = 28
EIO: Final = 29
ENOSYS: Final = 52
ENOTSOCK: Final = 57
ESPIPE: Final = 70
_ERRNOS: Mapping[int, int] = {Errno.EFAULT: EFAULT, Errno.EINVAL: EINVAL}

_STREAMS: Mapping[int, Stream] = {1: "stdout", 2: "stderr"}
_STDIN: Final = 0
_IOVEC: Final = 8
_MOST_VECTORS: Final = 1024
#: A longer write is a short one: the guest goes on with the rest.
_MOST_BYTES: Final = 1024 * 1024
#: Chance is written in pieces, so that a guest that is to end ends.
_CHANCE: Final = 64 * 1024
#: What C's library takes for a terminal: it writes out each line as it ends.
_CHARACTER_DEVICE: Final = 2
_RIGHT_READ: Final = 1 << 1
_RIGHT_WRITE: Final = 1 << 6
_RIGHT_POLL: Final = 1 << 27

_REALTIME: Final = 0
_MONOTONIC: Final = 1
_NANOSECONDS: Final = 1_000_000_000
_SUBSCRIPTION: Final = 48
_MOST_SUBSCRIPTIONS: Final = 1024
_CLOCK: Final = 0
_READABLE: Final = 1
_WRITABLE: Final = 2
_ABSOLUTE: Final = 1
_HANGUP: Final = 1


def answer(errno: int) -> int:
    """Return WASI's number for one of ours."""
    return _ERRNOS.get(errno, EIO)


# --- arguments, environment, chance, the end


def _strings(guest: Guest, strings: list[bytes], pointers: int, buffer: int) -> int:
    start = buffer & MASK
    table = bytearray()
    for one in strings:
        table += struct.pack("<I", start & MASK)
        start += len(one)
    guest.memory.write(buffer, b"".join(strings))
    guest.memory.write(pointers, bytes(table))
    return 0


def _sizes(guest: Guest, strings: list[bytes], count: int, size: int) -> int:
    guest.memory.write_u32(count, len(strings))
    guest.memory.write_u32(size, sum(map(len, strings)))
    return 0


def _arguments(guest: Guest) -> list[bytes]:
    return [f"{one}\0".encode() for one in ("guest", *guest.host.args)]


def _environment(guest: Guest) -> list[bytes]:
    return [f"{name}={value}\0".encode() for name, value in guest.host.env]


def args_get(guest: Guest, pointers: int, buffer: int) -> int:
    return _strings(guest, _arguments(guest), pointers, buffer)


def args_sizes_get(guest: Guest, count: int, size: int) -> int:
    return _sizes(guest, _arguments(guest), count, size)


def environ_get(guest: Guest, pointers: int, buffer: int) -> int:
    return _strings(guest, _environment(guest), pointers, buffer)


def environ_sizes_get(guest: Guest, count: int, size: int) -> int:
    return _sizes(guest, _environment(guest), count, size)


def random_get(guest: Guest, pointer: int, length: int) -> int:
    start, length = pointer & MASK, length & MASK
    guest.memory.check(start, length)
    for at in range(0, length, _CHANCE):
        if guest.is_to_end():
            raise Ended
        guest.memory.write(start + at, secrets.token_bytes(min(_CHANCE, length - at)))
    return 0


def proc_exit(guest: Guest, code: int) -> None:
    guest.exit(code)
    raise Ended


def sched_yield(_guest: Guest) -> int:
    return 0


# --- the three streams


def fd_write(guest: Guest, fd: int, vectors: int, count: int, written: int) -> int:
    stream = _STREAMS.get(fd)
    if stream is None:
        return EBADF
    data = _gathered(guest, vectors, count)
    guest.memory.write_u32(written, len(data))
    if data:
        guest.say(Output(stream, data))
    return 0


def _gathered(guest: Guest, vectors: int, count: int) -> bytes:
    data = bytearray()
    for pointer, length in _vectors(guest, vectors, count):
        guest.memory.check(pointer, length)
        data += guest.memory.read(pointer, min(length, _MOST_BYTES - len(data)))
    return bytes(data)


def _vectors(guest: Guest, vectors: int, count: int) -> Iterator[tuple[int, int]]:
    table = guest.memory.read(vectors, _IOVEC * min(count & MASK, _MOST_VECTORS))
    return struct.iter_unpack("<II", table)


def fd_read(guest: Guest, fd: int, _vectors: int, _count: int, read: int) -> int:
    """Read nothing: the input is at its end."""
    if fd != _STDIN:
        return EBADF
    guest.memory.write_u32(read, 0)
    return 0


def _is_stream(fd: int) -> bool:
    return fd == _STDIN or fd in _STREAMS


def fd_fdstat_get(guest: Guest, fd: int, pointer: int) -> int:
    if not _is_stream(fd):
        return EBADF
    rights = _RIGHT_POLL | (_RIGHT_READ if fd == _STDIN else _RIGHT_WRITE)
    guest.memory.write(pointer, struct.pack("<BxHxxxxQQ", _CHARACTER_DEVICE, 0, rights, 0))
    return 0


def fd_filestat_get(guest: Guest, fd: int, pointer: int) -> int:
    if not _is_stream(fd):
        return EBADF
    guest.memory.write(pointer, struct.pack("<QQBxxxxxxxQQQQQ", 0, 0, _CHARACTER_DEVICE, *[0] * 5))
    return 0


def _on_streams(found: int) -> Callable[..., int]:
    """Return a call that answers one thing for the streams; there is nothing else."""

    def answered(_guest: Guest, fd: int, *_numbers: int) -> int:
        return found if _is_stream(fd) else EBADF

    return answered


def _always(found: int) -> Callable[..., int]:
    def answered(_guest: Guest, *_numbers: int) -> int:
        return found

    return answered


# --- clocks, and waiting


def _now(guest: Guest, clock: int) -> int | None:
    """Return the nanoseconds of a clock; None for one that there is not."""
    if clock == _REALTIME:
        return int(guest.host.clock.now() * _NANOSECONDS)
    if clock == _MONOTONIC:
        return int(guest.host.clock.monotonic() * _NANOSECONDS)
    return None


def clock_res_get(guest: Guest, clock: int, pointer: int) -> int:
    if clock not in {_REALTIME, _MONOTONIC}:
        return EINVAL
    guest.memory.write(pointer, struct.pack("<Q", 1000))
    return 0


def clock_time_get(guest: Guest, clock: int, _precision: int, pointer: int) -> int:
    now = _now(guest, clock)
    if now is None:
        return EINVAL
    guest.memory.write(pointer, struct.pack("<Q", now))
    return 0


class _Event(Struct):
    """What a guest waits for: after so many nanoseconds it is there."""

    userdata: int
    kind: int
    after: int = 0
    error: int = 0
    flags: int = 0

    def packed(self) -> bytes:
        return struct.pack("<QHBxxxxxQHxxxxxx", self.userdata, self.error, self.kind, 0, self.flags)


def poll_oneoff(guest: Guest, subscriptions: int, events: int, count: int, found: int) -> int:
    """Wait until anything is there that is waited for; it ends with the guest."""
    if not 0 < count & MASK <= _MOST_SUBSCRIPTIONS:
        return EINVAL
    memory = guest.memory
    table = memory.read(subscriptions, _SUBSCRIPTION * count)
    memory.check(events, 32 * count)
    memory.check(found, 4)
    waited = [
        _subscribed(guest, table[at : at + _SUBSCRIPTION])
        for at in range(0, len(table), _SUBSCRIPTION)
    ]
    soonest = min(one.after for one in waited)
    if soonest:
        guest.crossing.wait(lambda: guest.host.clock.sleep(soonest / _NANOSECONDS))
    there = [one.packed() for one in waited if one.after <= soonest]
    memory.write(events, b"".join(there))
    memory.write_u32(found, len(there))
    return 0


def _subscribed(guest: Guest, subscription: bytes) -> _Event:
    userdata, kind = struct.unpack_from("<QB", subscription)
    if kind == _CLOCK:
        clock, timeout, _precision, flags = struct.unpack_from("<IxxxxQQH", subscription, 16)
        return _timer(guest, _Event(userdata, kind), clock, timeout, is_absolute=flags & _ABSOLUTE)
    (fd,) = struct.unpack_from("<I", subscription, 16)
    if kind == _WRITABLE and fd in _STREAMS:
        return _Event(userdata, kind)
    if kind == _READABLE and fd == _STDIN:
        return _Event(userdata, kind, flags=_HANGUP)
    return _Event(userdata, kind, error=EBADF if kind in {_READABLE, _WRITABLE} else EINVAL)


def _timer(guest: Guest, event: _Event, clock: int, timeout: int, *, is_absolute: int) -> _Event:
    now = _now(guest, clock)
    if now is None:
        event.error = EINVAL
    else:
        event.after = max(0, timeout - now) if is_absolute else timeout
    return event


# --- everything there is

#: A signature as in ``abi``, and the call.
_CALLS: Mapping[str, tuple[str, Callable[..., int | None]]] = {
    "args_get": ("iii", args_get),
    "args_sizes_get": ("iii", args_sizes_get),
    "environ_get": ("iii", environ_get),
    "environ_sizes_get": ("iii", environ_sizes_get),
    "clock_res_get": ("iii", clock_res_get),
    "clock_time_get": ("ilii", clock_time_get),
    "fd_advise": ("illii", _on_streams(ESPIPE)),
    "fd_allocate": ("illi", _on_streams(EINVAL)),
    "fd_close": ("ii", _on_streams(0)),
    "fd_datasync": ("ii", _on_streams(0)),
    "fd_fdstat_get": ("iii", fd_fdstat_get),
    "fd_fdstat_set_flags": ("iii", _on_streams(0)),
    "fd_fdstat_set_rights": ("illi", _on_streams(0)),
    "fd_filestat_get": ("iii", fd_filestat_get),
    "fd_filestat_set_size": ("ili", _on_streams(EINVAL)),
    "fd_filestat_set_times": ("illii", _on_streams(EINVAL)),
    "fd_pread": ("iiilii", _on_streams(ESPIPE)),
    "fd_prestat_get": ("iii", _always(EBADF)),
    "fd_prestat_dir_name": ("iiii", _always(EBADF)),
    "fd_pwrite": ("iiilii", _on_streams(ESPIPE)),
    "fd_read": ("iiiii", fd_read),
    "fd_readdir": ("iiilii", _always(EBADF)),
    "fd_renumber": ("iii", _always(EBADF)),
    "fd_seek": ("iliii", _on_streams(ESPIPE)),
    "fd_sync": ("ii", _on_streams(0)),
    "fd_tell": ("iii", _on_streams(ESPIPE)),
    "fd_write": ("iiiii", fd_write),
    "path_create_directory": ("iiii", _always(EBADF)),
    "path_filestat_get": ("iiiiii", _always(EBADF)),
    "path_filestat_set_times": ("iiiillii", _always(EBADF)),
    "path_link": ("iiiiiiii", _always(EBADF)),
    "path_open": ("iiiiilliii", _always(EBADF)),
    "path_readlink": ("iiiiiii", _always(EBADF)),
    "path_remove_directory": ("iiii", _always(EBADF)),
    "path_rename": ("iiiiiii", _always(EBADF)),
    "path_symlink": ("iiiiii", _always(EBADF)),
    "path_unlink_file": ("iiii", _always(EBADF)),
    "poll_oneoff": ("iiiii", poll_oneoff),
    "proc_exit": ("i-", proc_exit),
    "proc_raise": ("ii", _always(ENOSYS)),
    "random_get": ("iii", random_get),
    "sched_yield": ("i", sched_yield),
    "sock_accept": ("iiii", _on_streams(ENOTSOCK)),
    "sock_recv": ("iiiiiii", _on_streams(ENOTSOCK)),
    "sock_send": ("iiiiii", _on_streams(ENOTSOCK)),
    "sock_shutdown": ("iii", _on_streams(ENOTSOCK)),
}
IMPORTS: Mapping[str, str] = {name: letters for name, (letters, _) in _CALLS.items()}
CALLS: Mapping[str, Callable[..., int | None]] = {name: call for name, (_, call) in _CALLS.items()}
