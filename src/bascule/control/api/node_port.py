"""What the registry's API asks of a node: to try a server, and to show what it would offer.

The control plane holds no connection, so it only says what it needs. Above: a composition root
joins a node to it. Without one, ``needed`` answers ``no_node``.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from bascule.asgi.errors import Refused


class TestReport(Struct, frozen=True, kw_only=True):
    """How a trial of a server went: ``tools`` are the names the server itself uses."""

    __test__ = False  # not a class of tests, whatever its name says to pytest

    ok: bool
    duration_ms: float
    protocol: str | None = None
    tool_count: int | None = None
    tools: tuple[str, ...] = ()
    error: str | None = None


class ToolPreview(Struct, frozen=True, kw_only=True):
    """One tool after filtering: what models call it, whether it is allowed, and who decided.

    ``claims_read_only`` is the server's own word (``readOnlyHint``): a suggestion for people who
    class its tools, and nothing that anybody else goes by.
    """

    tool: str
    name: str
    allowed: bool
    layer: str
    reason: str
    claims_read_only: bool | None = None


class NodeFace(Protocol):
    """A node, as far as this API is concerned. Both answers have their own deadline."""

    async def test(self, server_id: str) -> TestReport:
        """Connect to a server and list its tools; a failure is a report, too."""
        ...

    async def preview(self, server_id: str) -> list[ToolPreview]:
        """Return every tool of a server with the decision about it."""
        ...


def needed(node: NodeFace | None) -> NodeFace:
    """Return the node, or refuse what cannot be answered without one."""
    if node is None:
        raise Refused("no_node", "no node serves here: a registry alone reaches no server")
    return node
