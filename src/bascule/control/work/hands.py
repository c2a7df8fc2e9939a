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
    """The orders that a node has yet to be sent."""

    __slots__ = ("_call", "_orders", "_ring", "is_awaited", "is_ready", "node")

    def __init__(self, node: str, call: Callable[[], None], ring: Callable[[], None]) -> None:
        """Have ``call`` wake the stream, and ``ring`` whoever looks for work."""
        self.node = node
        self._call = call
        self._ring = ring
        self._orders: list[Order] = []
        #: Whether the node has been told all that it needs to begin.
        self.is_ready = False
        #: Whether work was seen that waits for that.
        self.is_awaited = False

    def begin(self) -> None:
        """Take orders from now on; of many nodes that come at once, few have any."""
        self.is_ready = True
        if self.is_awaited:
            self.is_awaited = False
            self._ring()

    def give(self, order: Order) -> None:
        """Have an order sent."""
        self._orders.append(order)
        self._call()

    def orders(self) -> list[Order]:
        """Return what is to be sent now; it is not returned again."""
        if not self._orders:
            return self._orders
        orders, self._orders = self._orders, []
        return orders
