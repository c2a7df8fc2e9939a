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

    __slots__ = ("_call", "_orders", "is_ready", "node")

    def __init__(self, node: str, call: Callable[[], None]) -> None:
        """Have ``call`` wake the stream."""
        self.node = node
        self._call = call
        self._orders: list[Order] = []
        #: Whether the node has been told all that it needs to begin.
        self.is_ready = False

    def begin(self) -> None:
        """Take orders from now on; what waits already is found at the next look."""
        self.is_ready = True

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
