"""The calls of WASI preview 1 that can wait, in place of the engine's: those end by no epoch.

A guest has arguments, an environment of its own, clocks, chance, and two streams to write to: no
directory, no socket, no input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from bascule.doors.hostcalls.abi import MASK
from bascule.doors.hostcalls.guest import Guest
from bascule.doors.hostcalls.host import Output, Stream

MODULE: Final = "wasi_snapshot_preview1"
IMPORTS: Mapping[str, str] = {"fd_write": "iiiii"}
#: WASI's own error numbers, returned as they are.
EBADF: Final = 8
EIO: Final = 29
_STREAMS: Mapping[int, Stream] = {1: "stdout", 2: "stderr"}
_IOVEC: Final = 8
_MOST_VECTORS: Final = 1024


def fd_write(guest: Guest, fd: int, vectors: int, count: int, written_pointer: int) -> int:
    stream = _STREAMS.get(fd)
    if stream is None:
        return EBADF
    memory = guest.memory
    table = memory.read(vectors, _IOVEC * min(count & MASK, _MOST_VECTORS))
    data = b"".join(
        memory.read(
            int.from_bytes(table[at : at + 4], "little"),
            int.from_bytes(table[at + 4 : at + 8], "little"),
        )
        for at in range(0, len(table), _IOVEC)
    )
    memory.write_u32(written_pointer, len(data))
    guest.say(Output(stream, data))
    return 0


CALLS: Mapping[str, Callable[..., int]] = {"fd_write": fd_write}
