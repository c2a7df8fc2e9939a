"""When files of records are loaded: at start, on a signal, every so often, and when asked.

Below: the registry's ``Loader``, one for each directory or file. Above: ``up.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import GuardedRoute, route
from bascule.asgi.json import json_response
from bascule.clock import Clock
from bascule.control.registry.loader import Loader
from bascule.control.registry.service import RegistryService, Written
from bascule.errors import BasculeError
from bascule.roots.settings import Settings

RESCAN_SECONDS = 5.0
RESCAN_PATH = "/admin/api/mcp/rescan"
_SWITCH = {"true": True, "false": False}


class Reloading:
    """Loads one's own records, strictly if so set, and then the demo's where there is room."""

    def __init__(
        self,
        service: RegistryService,
        settings: Settings,
        demo: Path | None,
        tell: Callable[[Sequence[str]], None],
    ) -> None:
        own = [p for p in (settings.mcp.registry_dir, settings.mcp.registry_file) if p is not None]
        self._loaders = [Loader(service, path, strict=settings.strict) for path in own]
        self._demo = None if demo is None else Loader(service, demo)
        self._service = service
        self._tell = tell

    async def start(self) -> None:
        """Load for the first time; raise InvalidRecord when the process should not start."""
        written = await self._load()
        self._tell([problem for one in written for problem in one.problems])
        if self._demo is not None:
            await self._demo.load()  # a record of one's own with the demo's name stays

    async def on_order(self, asked: asyncio.Event) -> None:
        """Load whenever the event is set, until cancelled; what is wrong is told."""
        while True:
            await asked.wait()
            asked.clear()
            try:
                await self.start()
            except BasculeError as error:
                self._tell([str(error)])

    async def now_and_then(self, clock: Clock) -> None:
        """Load every so often, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for loader in self._loaders:
                tasks.create_task(loader.load_every(RESCAN_SECONDS, clock))

    def routes(self) -> list[GuardedRoute]:
        """Return the route that loads now, or with ``?dry_run=true`` says what it would do."""
        return [route(RESCAN_PATH, self._rescan, ["POST"], permission="registry:write")]

    async def _rescan(self, request: Request) -> Response:
        dry_run = _SWITCH.get(request.query_params.get("dry_run", "false"))
        if dry_run is None:
            raise Refused("invalid_request", "dry_run: must be true or false")
        written = await self._load(dry_run=dry_run)
        return json_response(
            {
                "revision": self._service.view.revision,
                "changed": any(one.change is not None for one in written),
                "diff": [str(one.diff()) for one in written],
                "problems": [problem for one in written for problem in one.problems],
                "warnings": [warning for one in written for warning in one.warnings],
            }
        )

    async def _load(self, *, dry_run: bool = False) -> list[Written]:
        return [await loader.load(dry_run=dry_run) for loader in self._loaders]
