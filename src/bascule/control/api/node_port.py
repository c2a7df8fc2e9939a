"""What the registry's API asks of a node: to try a server, and to show what it would offer.

The control plane holds no connection, so it only says what it needs. Without a node, ``needed``
answers ``no_node``.
"""

from __future__ import annotations

from typing import Protocol

from bascule.asgi.errors import Refused
from bascule.wire.api.trials import ToolPreview, Trial


class NodeFace(Protocol):
    """A node, as far as this API is concerned. Both answers have their own deadline."""

    async def test(self, server_id: str) -> Trial:
        """Connect to a server and list its tools; failures are returned, not raised."""
        ...

    async def preview(self, server_id: str) -> tuple[ToolPreview, ...]:
        """Return every tool of a server with the decision about it."""
        ...


def needed(node: NodeFace | None) -> NodeFace:
    """Return the node, or refuse what cannot be answered without one."""
    if node is None:
        raise Refused("no_node", "this process runs no node, so it cannot reach MCP servers")
    return node
