"""What only servers have: a trial by a node, and the tools that would be offered."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.json import json_response
from bascule.control.api.node_port import NodeFace, needed
from bascule.control.registry.service import RegistryService
from bascule.wire.api.trials import ToolPreviews


class Trials:
    """The endpoints that ask a node about a server."""

    def __init__(self, service: RegistryService, node: NodeFace | None) -> None:
        self._service = service
        self._node = node

    async def test(self, request: Request) -> Response:
        """Connect to a server, list its tools, and say how that went."""
        server_id = await self._known(request)
        return json_response(await needed(self._node).test(server_id))

    async def tools(self, request: Request) -> Response:
        """Show the tools of a server after filtering, each with the decision about it."""
        server_id = await self._known(request)
        tools = await needed(self._node).preview(server_id)
        return json_response(ToolPreviews(server_id, tools))

    async def _known(self, request: Request) -> str:
        return (await self._service.get("server", request.path_params["id"])).id
