"""What the servers of one session listed, and what went wrong where one did not.

A server that hangs is waited for only while there is nothing else to show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bascule.errors import BasculeError, DeadlineExceeded, ServerUnavailable
from bascule.model.decision import Decision, Reason, deny
from bascule.model.tool import ToolDescriptor
from bascule.node.ports import Listing, StillStarting

if TYPE_CHECKING:
    from bascule.node.bridge.core import BridgeCore

_NODE_REASONS: frozenset[str] = frozenset(
    {"env_missing", "secret_unbound", "list_timeout", "unavailable", "launch_denied"}
)
_MOMENT = 1.0


class Listings:
    """The lists of one session, by server."""

    def __init__(self, core: BridgeCore, session_id: str) -> None:
        self._core = core
        self._session_id = session_id
        self._lists: dict[str, Listing] = {}
        self._hopeful: set[str] = set()  # long in starting, and worth waiting for if need be
        #: Why servers did not list, as the node's own layer of the decision log.
        self.failures: dict[str, Decision] = {}
        #: Lists that may be out of date.
        self.stale: set[str] = set()
        self.closed = False

    def __contains__(self, server: object) -> bool:
        return server in self._lists

    def __bool__(self) -> bool:
        return bool(self._lists)

    def catalogue(self) -> Mapping[str, tuple[ToolDescriptor, ...]]:
        """Return the tools of every server that listed."""
        return {server: listing.tools for server, listing in self._lists.items()}

    def warnings(self, servers: Sequence[str]) -> Iterator[str]:
        """Return what is doubtful about the lists of these servers."""
        for server in servers:
            listing = self._lists.get(server)
            if listing is None:
                continue
            for warning in listing.warnings:
                yield f"{server}: {self._core.presentable_text(warning)}"
            for unusable in listing.quarantined:
                yield f"{server}: quarantined: {self._core.presentable_text(unusable)}"

    def instructions(self, servers: Sequence[str]) -> dict[str, str]:
        """Return what these servers say about their use, harmless and of bounded length."""
        told = ((server, self._lists.get(server)) for server in servers)
        return {
            server: self._core.shown_instructions(listing.instructions)
            for server, listing in told
            if listing is not None and listing.instructions
        }

    def doubt(self) -> None:
        """Note that any list may have changed; each is looked at when it is used."""
        self.stale = set(self._lists)

    def unknown(self, servers: Sequence[str]) -> list[str]:
        """Return those of servers whose list is missing or may be out of date."""
        return [server for server in servers if server in self.stale or server not in self._lists]

    def keep(self, servers: Collection[str]) -> None:
        """Forget all servers but these."""
        self.failures = {s: failure for s, failure in self.failures.items() if s in servers}
        self._lists = {s: listing for s, listing in self._lists.items() if s in servers}

    async def bring(self, server: str, *, patient: bool = True) -> str | None:
        """Bring one server's list up to date; return what went wrong, in words."""
        self._hopeful.discard(server)
        try:
            listing = await self._asked(server, patient=patient)
        except BasculeError as error:
            if not isinstance(error, StillStarting):
                self._lists.pop(server, None)
            elif error.hopeful:
                self._hopeful.add(server)
            return self._failed(server, error)
        self._take(server, listing)
        return None

    async def bring_within(self, seconds: float, server: str) -> None:
        """Bring one server's list for a call; raise DeadlineExceeded when that takes too long."""
        try:
            async with asyncio.timeout(seconds):
                await self.bring(server)
        except TimeoutError:
            raise DeadlineExceeded(f"server {server!r} was not there in time") from None

    async def bring_all(self, servers: Sequence[str]) -> dict[str, str | None]:
        """Bring what can be brought; return what went wrong, in words, by server.

        Lists that are up to date are taken as they are: in the usual case nothing is waited for.
        """
        asked = [server for server in servers if not self._is_fresh(server)]
        return await self._ask_all(asked) if asked else {}

    async def _ask_all(self, servers: Sequence[str]) -> dict[str, str | None]:
        """Ask servers for their lists.

        Only while there is nothing to show is a server waited for that is long in starting.
        """
        listed = await asyncio.gather(*(self.bring(s, patient=False) for s in servers))
        problems = dict(zip(servers, listed, strict=True))
        waiting = {
            asyncio.ensure_future(self.bring(server)): server
            for server in self._hopeful.intersection(servers)
            if not self._lists
        }
        try:
            while waiting and not self._lists:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                problems |= {waiting.pop(task): task.result() for task in done}
        finally:
            for task in waiting:
                task.cancel()
        return problems

    async def bring_until(self, found: Callable[[], bool], servers: Sequence[str]) -> None:
        """Bring lists until something is found; others have a moment then: it may be there, too."""
        waiting = {asyncio.ensure_future(self.bring(server, patient=False)) for server in servers}
        try:
            while waiting:
                enough = found()
                until = asyncio.ALL_COMPLETED if enough else asyncio.FIRST_COMPLETED
                seconds = _MOMENT if enough else None
                _, waiting = await asyncio.wait(waiting, timeout=seconds, return_when=until)
                if enough:
                    return
        finally:
            for task in waiting:
                task.cancel()

    async def renew(self, server: str) -> None:
        """Take a newer list if there is one; raise what goes wrong and keep the old one."""
        self._lists[server] = await self._asked(server, patient=False)

    def _is_fresh(self, server: str) -> bool:
        """Take a server's list if it is up to date, and say whether it was."""
        listing = None if self.closed else self._core.caller.fresh(server, self._session_id)
        if listing is None:
            return False
        self._hopeful.discard(server)
        self._core.note_listed(server, listing.tools)
        self._take(server, listing)
        return True

    def _take(self, server: str, listing: Listing) -> None:
        self._lists[server] = listing
        self.stale.discard(server)
        self.failures.pop(server, None)

    async def _asked(self, server: str, *, patient: bool) -> Listing:
        if self.closed:
            raise ServerUnavailable("the session is closed")
        found = await self._core.caller.listing(server, self._session_id, patient=patient)
        self._core.note_listed(server, found.tools)
        return found

    def _failed(self, server: str, error: BasculeError) -> str:
        reason = error.reason if isinstance(error, ServerUnavailable) else "unavailable"
        known: Reason = reason if reason in _NODE_REASONS else "unavailable"  # pyright: ignore[reportAssignmentType]
        text = self._core.presentable_text(str(error))
        self.failures[server] = deny(server, None, "node", known, text)
        return f"{server}: {known}: {text}"
