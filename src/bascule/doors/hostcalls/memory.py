"""Checked reads and writes in a guest's memory.

Pointers and lengths arrive signed and mean unsigned numbers. Each access is held against the memory
as it is now: it may have grown, and moved, since the last one.
"""

from __future__ import annotations

import ctypes
from typing import Final

from msgspec import Struct
from wasmtime import Memory, Store

from bascule.doors.hostcalls.abi import MASK, Errno, Fault

#: The longest JSON text that is read: as much as the API takes. Longer ones, made of empty
#: lists, become gigabytes, and whoever reads them can do nothing else for seconds.
MOST_JSON: Final = 1024 * 1024
_U32: Final = 4
_SIGN: Final = 0x8000_0000


class Window(Struct, frozen=True):
    """Where a guest wants an answer: room for so many bytes, and where their length goes."""

    pointer: int
    capacity: int
    length_pointer: int


class GuestMemory:
    """The exported memory of one guest."""

    def __init__(self, memory: Memory, store: Store) -> None:
        self._memory = memory
        self._store = store

    @property
    def size(self) -> int:
        """Return how large it is now."""
        return self._memory.data_len(self._store)

    def read(self, pointer: int, length: int) -> bytes:
        """Return bytes of the guest; a negative length is -EINVAL, bytes it has not -EFAULT."""
        if length & _SIGN:
            raise Fault(Errno.EINVAL)
        if not length:
            self.check(pointer, 0)
            return b""
        return ctypes.string_at(self._at(pointer, length), length)

    def json(self, pointer: int, length: int) -> bytes:
        """Return bytes that are to be read as JSON; -EINVAL for too many."""
        if length > MOST_JSON:
            raise Fault(Errno.EINVAL)
        return self.read(pointer, length)

    def text(self, pointer: int, length: int) -> str:
        """Return UTF-8 text of the guest, or -EILSEQ."""
        try:
            return self.read(pointer, length).decode("utf-8")
        except UnicodeDecodeError:
            raise Fault(Errno.EILSEQ) from None

    def write(self, pointer: int, data: bytes) -> None:
        """Write all of it, or nothing."""
        if data:
            ctypes.memmove(self._at(pointer, len(data)), data, len(data))

    def u32(self, pointer: int) -> int:
        """Return a number of four bytes."""
        return int.from_bytes(self.read(pointer, _U32), "little")

    def write_u32(self, pointer: int, value: int) -> None:
        """Write a number of four bytes."""
        self.write(pointer, value.to_bytes(_U32, "little"))

    def window(self, pointer: int, length_pointer: int) -> Window:
        """Return where an answer goes, all of it checked: nothing is done for a bad one."""
        capacity = self.u32(length_pointer)
        if capacity & _SIGN:
            raise Fault(Errno.EINVAL)
        self.check(pointer, capacity)
        return Window(pointer & MASK, capacity, length_pointer & MASK)

    def answer(self, window: Window, data: bytes) -> int:
        """Write an answer and its length, and return that; -ENOSPC and the length if it is short.

        The guest may have changed the length meanwhile, in a tool of its own: what was checked
        before the call counts.
        """
        self.write_u32(window.length_pointer, len(data))
        if len(data) > window.capacity:
            raise Fault(Errno.ENOSPC)
        self.write(window.pointer, data)
        return len(data)

    def check(self, pointer: int, length: int) -> int:
        """Return where so many bytes begin, or -EFAULT."""
        start = pointer & MASK
        if start + length > self.size:
            raise Fault(Errno.EFAULT)
        return start

    def _at(self, pointer: int, length: int) -> int:
        """Return the address of so many bytes (not none), or -EFAULT."""
        start = self.check(pointer, length)
        return ctypes.addressof(self._memory.data_ptr(self._store).contents) + start
