"""When files of records are loaded: at start, on a change, on a signal, now and then, when asked.

The registry's ``Loader`` reads all sources, so that every load is one revision at most; of several
replicas, ``FileTurns`` lets those load whose files count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from bascule.app.settings import Settings
from bascule.asgi.guard import GuardedRoute, route
from bascule.asgi.json import json_response
from bascule.asgi.parameters import flag
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.registry.copies import FileTurns
from bascule.control.registry.loader import Loader
from bascule.control.registry.service import RegistryService
from bascule.control.registry.written import Written
from bascule.errors import BasculeError
from bascule.files.watch import changes
from bascule.wire.api.addresses import RESCAN
from bascule.wire.api.imports import Rescanned

#: Watching notices changes at once; this is for file systems that tell nothing.
RESCAN_SECONDS = 30.0


class Reloading:
    """Loads one's own records, strictly if so set, and the demo's where there is room."""

    def __init__(
        self,
        service: RegistryService,
        settings: Settings,
        demo: Path | None,
        tell: Callable[[Sequence[str]], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._service = service
        self._loader = loader_of(service, settings, demo)
        self._turns = FileTurns(self._loader, service.duties, clock)
        self._tell = tell
        self._said: tuple[str, ...] = ()
        #: What the last load left out, and why.
        self.problems: tuple[str, ...] = ()

    @property
    def trouble(self) -> str | None:
        """Say why this replica's files do not count now, if so, and what to do."""
        return self._turns.trouble

    async def start(self) -> None:
        """Load for the first time; raise InvalidRecord when the process should not start."""
        self._say(self._heard(await self._turns.load()))

    async def on_order(self, ordered: asyncio.Event) -> None:
        """Load whenever the event is set, until cancelled; what is wrong is told each time."""
        while True:
            await ordered.wait()
            ordered.clear()
            self._said = ()
            await self._load()

    async def on_change(self, clock: Clock) -> None:
        """Load whenever a file changes, until cancelled; what is wrong is told when it is news."""
        changed = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for path in self._loader.paths:
                tasks.create_task(_notice(path, changed, clock))
            while True:
                await changed.wait()
                changed.clear()
                await self._load()

    async def now_and_then(self, clock: Clock) -> None:
        """Load every so often, until cancelled; what is wrong is told when it is news."""
        while self._loader.paths:
            await clock.sleep(RESCAN_SECONDS)
            await self._load()

    def routes(self) -> list[GuardedRoute]:
        """Return the route that loads now."""
        return [route(RESCAN, self._rescan, ["POST"], permission="registry:write")]

    async def _rescan(self, request: Request) -> Response:
        """Load the files of records now, or with ``dry_run`` say what that would change."""
        dry_run = flag(request, "dry_run")
        if dry_run:
            written = await self._loader.load(dry_run=True)
        else:
            written = await self._turns.load()
            self.problems = written.problems
        diff = await self._service.diff_of(written)
        answer = Rescanned(
            revision=written.revision,
            changed=bool(diff),
            diff=tuple(diff.text.splitlines()),
            problems=written.problems,
            warnings=written.warnings,
        )
        return json_response(answer)

    async def _load(self) -> None:
        """Load; a load that fails leaves the registry as it is, and is tried again some time."""
        try:
            written = await self._turns.load()
        except BasculeError as error:
            self.problems = (str(error),)
            self._say(self.problems)
        else:
            self._say(self._heard(written))

    def _heard(self, written: Written) -> tuple[str, ...]:
        """Return what was left out, and what was taken in all the same."""
        self.problems = written.problems
        return (*written.problems, *written.warnings)

    def _say(self, words: tuple[str, ...]) -> None:
        if words != self._said:
            self._tell(words)
        self._said = words


def loader_of(service: RegistryService, settings: Settings, demo: Path | None) -> Loader:
    """Return the loader of everything that the settings name."""
    named = (settings.mcp.registry_dir, settings.mcp.registry_file)
    own = [path for path in named if path is not None]
    links = settings.mcp.follow_links
    return Loader(service, *own, defaults=demo, strict=settings.strict, follow_links=links)


async def _notice(path: Path, changed: asyncio.Event, clock: Clock) -> None:
    async with aclosing(changes(path, clock)) as noticed:
        async for _ in noticed:
            changed.set()
