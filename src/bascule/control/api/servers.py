"""What only servers have: a trial by a node, of a record or a draft, and the tools on offer.

A trial ends when whoever asked for it hangs up. With ``Accept: text/event-stream`` each step is
told as it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi import sse
from bascule.asgi.guard import STILL
from bascule.asgi.json import as_struct, json_response, read_object
from bascule.asgi.parameters import only_parameters, word
from bascule.asgi.presence import while_connected
from bascule.clock import Clock
from bascule.control.api import query
from bascule.control.api.imports import server_of
from bascule.control.api.node_port import AnyNode, Told
from bascule.control.registry.offload import LARGE, apart
from bascule.control.registry.plan import Edit
from bascule.control.registry.service import RegistryService
from bascule.errors import BasculeError
from bascule.model.server import ServerRecord
from bascule.wire.api.imports import ImportTrial
from bascule.wire.api.trials import ToolPreviews, Trial, TrialStep

_TRYING: TypeAlias = Callable[[Told], Coroutine[Any, Any, Trial]]


class Trials:
    """The endpoints that ask a node about a server."""

    def __init__(self, service: RegistryService, nodes: AnyNode, clock: Clock) -> None:
        self._service = service
        self._nodes = nodes
        self._clock = clock

    async def test(self, request: Request) -> Response:
        """Connect to a server, list its tools, and say how that went, step by step."""
        only_parameters(request, "node")
        server_id = await self._known(request)
        node = self._nodes.chosen(word(request, "node"), server_id)
        return await self._answer(request, partial(node.test, server_id))

    async def test_draft(self, request: Request) -> Response:
        """Do the same with a record that is not written, or a text's; nothing of it stays."""
        only_parameters(request, "node")
        record = await self._draft(request)
        node = self._nodes.chosen(word(request, "node"), record.server_id)
        return await self._answer(request, partial(node.try_out, record))

    async def tools(self, request: Request) -> Response:
        """Show the tools of a server after filtering, each with the decision about it."""
        only_parameters(request, "node")
        server_id = await self._known(request)
        work = self._nodes.chosen(word(request, "node"), server_id).preview(server_id)
        tools = await while_connected(request.scope, request.receive, work)
        return json_response(ToolPreviews(server_id, tools))

    async def _known(self, request: Request) -> str:
        return (await self._service.get("server", request.path_params["id"])).id

    async def _draft(self, request: Request) -> ServerRecord:
        """Return a draft that its author might write: held to every check of a write."""
        body = await read_object(request)
        if isinstance(body.get("text"), str):
            body = await apart(LARGE, partial(server_of, as_struct(body, ImportTrial)))
        edit = Edit(kind="server", data=body)
        written = await self._service.apply([edit], query.author(request), dry_run=True)
        return written.after.snapshot().servers[str(edit.data["server_id"])]

    async def _answer(self, request: Request, trying: _TRYING) -> Response:
        if "text/event-stream" in request.headers.get("accept", ""):
            return sse.EventStream(_told(trying, request.scope[STILL]), self._clock)
        work = trying(_tell_nobody)
        return json_response(await while_connected(request.scope, request.receive, work))


def _tell_nobody(_: TrialStep) -> None:
    """The answer has all steps."""


def _result(trial: asyncio.Future[Trial]) -> Trial:
    """Return how a trial went; the stream has begun, so what hindered it is said in its words."""
    try:
        return trial.result()
    except BasculeError as error:
        return Trial(ok=False, duration_ms=0.0, error=str(error))


async def _told(
    trying: _TRYING, still: Callable[[], Awaitable[object]]
) -> AsyncGenerator[sse.Event, None]:
    """Yield each step as it ends, then the trial; end it with the stream."""
    steps: asyncio.Queue[TrialStep | None] = asyncio.Queue()
    trial = asyncio.ensure_future(trying(steps.put_nowait))
    trial.add_done_callback(lambda _: steps.put_nowait(None))
    try:
        while (step := await steps.get()) is not None:
            await still()
            yield sse.Event(event="step", data=step)
        await still()
        yield sse.Event(event="result", data=_result(trial))
    finally:
        trial.cancel()
        await asyncio.wait({trial})
