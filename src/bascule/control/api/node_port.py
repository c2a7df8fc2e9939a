"""What the registry's API asks of a node: to try a server, and to show what it would offer.

The control plane holds no connection, so it only says what it needs. Who is asked is the node of
this process, if it has one, or one of those that follow it from elsewhere (``AnyNode``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
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


class FarNodes(Protocol):
    """The nodes of other processes."""

    def any(self, server_id: str, /) -> NodeFace:
        """Return one that lives and may be given a server; raise Refused."""
        ...

    def named(self, name: str, server_id: str, /) -> NodeFace:
        """Return the one of a name, if it may be given the server; raise Refused."""
        ...


class AnyNode:
    """Says which node is asked; ``own`` is that of this process, called by one of ``names``."""

    def __init__(
        self,
        own: NodeFace | None = None,
        far: FarNodes | None = None,
        names: Collection[str] = (),
    ) -> None:
        self._own = own
        self._far = far
        self._names = names

    def chosen(self, name: str | None, server_id: str) -> NodeFace:
        """Return the node of a name, or one for a server; raise Refused where there is none."""
        if self._own is not None and (name is None or name in self._names):
            return self._own
        if self._far is not None:
            return self._far.any(server_id) if name is None else self._far.named(name, server_id)
        if name is None:
            raise Refused("no_node", "this process runs no node, so it cannot reach MCP servers")
        details = {"parameter": "node", "node": name}
        raise Refused("not_found", f"node: there is no node {name!r}", details=details)
