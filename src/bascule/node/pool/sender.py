"""Who finds the way for a call that has to wait, and sends one more time what may be: the pool."""

from __future__ import annotations

from typing import Protocol

from bascule.errors import NotDelivered, OutcomeUnknown
from bascule.model.json import JsonObject
from bascule.node.ports import Outgoing


class Sender(Protocol):
    """What a connection needs for the calls that it cannot carry itself."""

    async def send(self, call: Outgoing) -> JsonObject:
        """Wait for a way, and send the call."""
        ...

    async def send_again(
        self, call: Outgoing, error: NotDelivered | OutcomeUnknown, left: float
    ) -> JsonObject:
        """Send it a second time, with the seconds that are left; raise the error otherwise."""
        ...
