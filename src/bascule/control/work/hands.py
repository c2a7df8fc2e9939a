"""What is handed to one node on its stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from bascule.control.work.rows import Work


class Cancelled(Struct, frozen=True):
    """Nobody waits for a piece of work any more."""

    id: str


Order: TypeAlias = Work | Cancelled


class Hand:
    """The orders that a node has yet to be sent, and the works that it has not finished."""

    __slots__ = ("_call", "_orders", "_ring", "is_ready", "node", "open")

    def __init__(self, node: str, call: Callable[[], None], ring: Callable[[], None]) -> None:
        """Have ``call`` wake the stream, and ``ring`` whoever looks for work."""
        self.node = node
        self._call = call
        self._ring = ring
        self._orders: list[Order] = []
        #: Whether the node has been told all that it needs to begin.
        self.is_ready = False
        self.open: set[str] = set()

    def begin(self) -> None:
        """Take orders from now on."""
        if not self.is_ready:
            self.is_ready = True
            self._ring()

    def give(self, work: Work) -> None:
        """Have a piece of work sent."""
        self.open.add(work.id)
        self._orders.append(work)
        self._call()

    def cancel(self, id: str) -> None:
        """Have the node told that nobody waits for a piece of work."""
        self.open.discard(id)
        self._orders.append(Cancelled(id))
        self._call()

    def orders(self) -> list[Order]:
        """Return what is to be sent now; it is not returned again."""
        if not self._orders:
            return self._orders
        orders, self._orders = self._orders, []
        return orders
