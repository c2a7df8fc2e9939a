"""What the registry's API asks of a node: to try a server, and to show what it would offer.

The control plane holds no connection, so it only says what it needs. Without a node, ``needed``
answers ``no_node``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from bascule.asgi.errors import Refused
from bascule.model.server import ServerRecord
from bascule.wire.api.trials import ToolPreview, Trial, TrialStep

Told: TypeAlias = Callable[[TrialStep], None]


class NodeFace(Protocol):
    """A node, as far as this API is concerned. Every answer has a deadline of its own."""

    async def test(self, server_id: str, tell: Told, /) -> Trial:
        """Connect to a server and list its tools; failures are returned, not raised.

        ``tell`` is told of each step as it ends.
        """
        ...

    async def try_out(self, record: ServerRecord, tell: Told, /) -> Trial:
        """Do the same with a record that is not in the registry; nothing of it stays."""
        ...

    async def preview(self, server_id: str) -> tuple[ToolPreview, ...]:
        """Return every tool of a server with the decision about it."""
        ...


def needed(node: NodeFace | None) -> NodeFace:
    """Return the node, or refuse what cannot be answered without one."""
    if node is None:
        raise Refused("no_node", "this process runs no node, so it cannot reach MCP servers")
    return node
