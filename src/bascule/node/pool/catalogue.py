"""The tools of one connection, listed once and kept fresh.

A list is good for its TTL (the server's own where it gives one), a failure for a short while; many
callers cause one listing; a change the server announces is never lost, however often it announces.
A tool that cannot be used is left out with a warning; the rest of the list stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bascule.clock import Clock
from bascule.errors import BasculeError, DeadlineExceeded, ServerUnavailable
from bascule.lifetime import observed
from bascule.model.json import JsonObject
from bascule.model.server import ServerRecord
from bascule.model.tool import ToolDescriptor, describe
from bascule.model.whole_words import beginning
from bascule.node.pool.client import ToolList
from bascule.node.ports import Listing
from bascule.node.settings import NodeSettings
from bascule.policy.schema import SchemaRejected, compile_schema

MAX_DESCRIPTION = 16 * 1024
#: More of a server's instructions than is ever shown.
MAX_INSTRUCTIONS = 64 * 1024
MAX_TTL_SECONDS = 86_400.0
LOOK_SECONDS = 0.1
_MAX_DOUBLINGS = 16


Fetch = Callable[[], Awaitable[ToolList]]
Found = TypeVar("Found")


def unlisted(error: BasculeError) -> ServerUnavailable:
    """Return why there is no list, with the node's reason."""
    if isinstance(error, ServerUnavailable):
        return error
    if isinstance(error, DeadlineExceeded):
        return ServerUnavailable(f"no tool list in time: {error}", reason="list_timeout")
    return ServerUnavailable(f"tools/list failed: {error}")


async def joined(task: asyncio.Task[Found]) -> Found:
    """Wait for work that others share; its end by their hand is no cancellation of the caller."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is None or current.cancelling():
            raise
        raise ServerUnavailable("the connection was closed") from None


async def done_before(task: asyncio.Task[object], lags: Callable[[], bool], clock: Clock) -> bool:
    """Wait for a task, looking now and then whether it is still worth it; say if it is done."""
    await asyncio.wait({task}, timeout=0)  # what needs no answer from elsewhere needs one turn
    while not task.done() and not lags():
        look = asyncio.get_running_loop().create_task(clock.sleep(LOOK_SECONDS))
        try:
            await asyncio.wait({task, look}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            look.cancel()
    return task.done()


class Catalogue:
    """The cached tool list of one connection."""

    def __init__(
        self,
        record: ServerRecord,
        fetch: Fetch,
        settings: NodeSettings,
        clock: Clock,
        on_change: Callable[[], int],
    ) -> None:
        self._record = record
        self._fetch = fetch
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        #: The last list, fresh or not.
        self.listing: Listing | None = None
        self._digests: tuple[str, ...] = ()
        self._expires = 0.0
        self._failure: tuple[float, BasculeError] | None = None
        self._failures = 0
        self._refreshing: asyncio.Task[Listing] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._dirty = False
        self._closed = False

    async def get(self, lags: Callable[[], bool] | None = None) -> Listing:
        """Return the list, fetching it when it is not fresh; raise what kept it from coming.

        Who gives ``lags`` waits until that is true, and no longer: it raises TimeoutError, and
        the list comes when it comes.
        """
        fresh = self.fresh
        if fresh is not None:
            return fresh
        if self._failure is not None and self._clock.monotonic() < self._failure[0]:
            raise self._failure[1].with_traceback(None)
        refreshing = self._refresh()
        if lags is not None and not await done_before(refreshing, lags, self._clock):
            raise TimeoutError
        return await joined(refreshing)

    @property
    def fresh(self) -> Listing | None:
        """Return the list while it is good."""
        if self._dirty or self.listing is None or self._clock.monotonic() >= self._expires:
            return None
        return self.listing

    async def renew(self) -> Listing:
        """Return the list as the server gives it now, whatever is remembered."""
        return await joined(self._refresh())

    def invalidate(self) -> None:
        """Note that the server announced a change: list again soon, once for many notes."""
        if self._closed:
            return
        self._dirty = True
        if self._settling is None or self._settling.done():
            self._settling = asyncio.get_running_loop().create_task(self._settle())

    def reopened(self) -> None:
        """Ask the server anew: it is connected again, and earlier failures count no more."""
        self.forgive()
        if self.listing is not None:
            self.invalidate()

    def forgive(self) -> None:
        """Let earlier failures count no more."""
        self._failure = None

    async def close(self) -> None:
        """Stop whatever is under way, for good; those who wait are told."""
        self._closed = True
        both = (self._settling, self._refreshing)
        tasks: list[asyncio.Task[object]] = [task for task in both if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _refresh(self) -> asyncio.Task[Listing]:
        if self._closed:
            raise ServerUnavailable("the connection was closed")
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._list())
            self._refreshing.add_done_callback(observed)
        return self._refreshing

    async def _settle(self) -> None:
        """Wait for the announcements to calm down, then list until none came meanwhile."""
        while self._dirty:
            await self._clock.sleep(self._settings.list_debounce_seconds)
            if not self._dirty:
                return  # somebody asked meanwhile, after the last announcement
            try:
                await joined(self._refresh())
            except BasculeError:
                return  # whoever asks next is told; the list stays marked as stale

    async def _list(self) -> Listing:
        announced, self._dirty = self._dirty, False
        try:
            fetched = await self._fetch()
        except BasculeError as error:
            self._dirty = self._dirty or announced  # a list that was fresh is as fresh as before
            self._failure = (self._clock.monotonic() + self._memory(), error)
            self._failures += 1
            raise
        self._failure, self._failures = None, 0
        self._expires = self._clock.monotonic() + self._ttl(fetched.ttl_ms)
        return self._take(fetched)

    def _memory(self) -> float:
        """Return how long a failure counts: longer each time, while nothing else comes."""
        doubled = self._settings.list_failure_seconds * 2.0 ** min(self._failures, _MAX_DOUBLINGS)
        return min(doubled, self._settings.backoff_limit_seconds)

    def _ttl(self, ttl_ms: int | None) -> float:
        if ttl_ms is None:
            return self._settings.list_ttl_seconds
        return min(ttl_ms / 1000, MAX_TTL_SECONDS)

    def _take(self, fetched: ToolList) -> Listing:
        """Keep the new list; only one that differs from the last gets a new version."""
        tools, unusable = usable_tools(self._record, fetched)
        digests = tuple(tool.digest for tool in tools)
        if self.listing is not None and digests == self._digests:
            tools, version = self.listing.tools, self.listing.version
        else:
            self._digests, version = digests, self._on_change()
        said = fetched.instructions and beginning(fetched.instructions, MAX_INSTRUCTIONS)
        self.listing = Listing(tools, fetched.warnings, version, unusable, said)
        return self.listing


def usable_tools(
    record: ServerRecord, fetched: ToolList
) -> tuple[tuple[ToolDescriptor, ...], tuple[str, ...]]:
    """Describe the tools of a list; return also what is wrong with each that cannot be used."""
    tools: dict[str, ToolDescriptor] = {}
    unusable = list(fetched.quarantined)
    for definition in fetched.tools:
        try:
            tool = describe(record, _bounded(definition))
            compile_schema(tool.input_schema)
        except (ValueError, SchemaRejected) as error:
            unusable.append(beginning(str(error), 200))
            continue
        if tool.name in tools:
            unusable.append(f"a second tool is called {beginning(tool.name, 80)!r}")
            continue
        tools[tool.name] = tool
    return tuple(tools[name] for name in sorted(tools)), tuple(unusable)


def _bounded(definition: JsonObject) -> JsonObject:
    """Cut a description that is beyond all measure; everything else stays as it came."""
    text = definition.get("description")
    if isinstance(text, str) and len(text) > MAX_DESCRIPTION:
        return {**definition, "description": f"{beginning(text, MAX_DESCRIPTION)} […]"}
    return definition
