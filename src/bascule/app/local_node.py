"""A registry and a node in one process, each as the other needs it.

The node follows the registry through ``LocalSource``; the registry's API asks the node through
``LocalNode``. Neither imports the other. A node of its own process has a client in place of the
first, and the registry a channel to it in place of the second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress

from msgspec.structs import replace

from bascule.clock import Clock
from bascule.control.registry.service import RegistryService
from bascule.control.registry.status import NodeReport
from bascule.control.registry.store import Change, Event
from bascule.errors import BasculeError, ServerUnavailable
from bascule.model.json import is_object
from bascule.model.launcher import fetches
from bascule.model.server import ServerRecord
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Records, Snapshot, SnapshotChange
from bascule.model.tool import ToolDescriptor
from bascule.node.assembly import Bridge, ServerInspection
from bascule.node.sync.ports import Report
from bascule.node.trial_steps import Told, TrialSteps, nobody
from bascule.policy.access import compile_access
from bascule.policy.compose import compose
from bascule.wire.api.trials import ToolPreview, Trial, TrialStep

NODE_NAME = "local"
#: How long a trial waits: most clients give up on an answer after a minute.
TRIAL_SECONDS = 45.0
#: How long one waits whose packages have to come first, of a record that is not served: what came
#: is gone with it, so that a second try begins anew. The commands and the page wait longer.
FETCH_TRIAL_SECONDS = 100.0
#: How many of the last lines of a program's standard error a trial shows.
TRIAL_LINES = 20


class LocalSource:
    """A ``RegistrySource`` over the registry of this process."""

    def __init__(self, service: RegistryService, clock: Clock, name: str = NODE_NAME) -> None:
        """Follow a registry, as a node of this name."""
        self._service = service
        self._clock = clock
        self._name = name
        service.standing.own.add(name)

    async def snapshot(self, known: Snapshot | None = None) -> Snapshot:
        """Return everything at the newest revision; ``known`` itself if it is that."""
        view = self._service.view
        if known is not None and known.position == view.position:
            return known
        return self._service.snapshot()

    async def watch(self, since: Snapshot) -> AsyncGenerator[SnapshotChange, None]:
        """Return the changes after a snapshot."""
        events = await self._service.watch(since.position)
        return _changes(events, self._service.view.store_id)

    async def report(self, report: Report) -> None:
        """Keep what the node says."""
        await self._service.standing.report(
            NodeReport(
                node=self._name,
                revision=report.revision,
                state=report.state,
                servers=report.servers,
                reason=report.reason,
                at=self._clock.now(),
            )
        )


async def _changes(
    events: AsyncGenerator[Event, None], store_id: str
) -> AsyncGenerator[SnapshotChange, None]:
    async with aclosing(events):
        async for event in events:
            entries = event.entries if isinstance(event, Change) else ()
            records: Records = {(e.kind, e.id): e.stored and e.stored.record for e in entries}
            yield SnapshotChange(store_id, event.revision, records, event.mark)


class LocalNode:
    """The ``NodeFace`` of the node in this process."""

    def __init__(
        self,
        bridge: Bridge,
        clock: Clock,
        seconds: float = TRIAL_SECONDS,
        *,
        fetch_seconds: float = FETCH_TRIAL_SECONDS,
        catch_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._bridge = bridge
        self._clock = clock
        self._seconds = seconds
        self._fetch_seconds = fetch_seconds
        self._catch_up = catch_up

    async def test(self, server_id: str, tell: Told = nobody) -> Trial:
        """Connect to a server and list its tools; failures are returned, not raised."""
        await self._follow()
        steps = self._steps(tell)
        work = self._bridge.inspect(server_id, afresh=True, steps=steps)
        trial = await self._tried(work, steps, lambda: self._unfinished(server_id), self._seconds)
        record = self._bridge.snapshot.servers.get(server_id)
        return await self._explained(trial, record, self._bridge.said(server_id))

    async def try_out(self, record: ServerRecord, tell: Told = nobody) -> Trial:
        """Do the same with a record that is not served; nothing of it stays."""
        steps, said = self._steps(tell), list[str]()
        work = self._bridge.try_out(record, steps, said.append)
        fetched = record.stdio is not None and fetches(record.stdio)
        seconds = max(self._seconds, self._fetch_seconds) if fetched else self._seconds
        late = f"no answer within {seconds:g} s"
        trial = await self._tried(work, steps, lambda: late, seconds)
        return await self._explained(trial, record, "".join(said))

    async def _explained(self, trial: Trial, record: ServerRecord | None, said: str) -> Trial:
        """Return a trial with what the server said, and what it missed if it failed."""
        trial = replace(trial, stderr=self._lines(said))
        if trial.ok or record is None:
            return trial
        words = f"{said}\n{trial.error or ''}"
        return replace(trial, missed=await self._bridge.missed(record, words))

    async def _tried(
        self,
        work: Awaitable[ServerInspection],
        steps: TrialSteps,
        late: Callable[[], str],
        seconds: float,
    ) -> Trial:
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(seconds):
                found = await work
        except (TimeoutError, BasculeError) as error:
            words = late() if isinstance(error, TimeoutError) else str(error)
            said = self._bridge.presentable_text(words)
            steps.failed(said)
            took = self._since(began)
            return Trial(ok=False, duration_ms=took, error=said, steps=self._shown(steps))
        names = tuple(self._bridge.presentable_text(tool.name) for tool in found.listing.tools)
        return Trial(
            ok=True,
            duration_ms=self._since(began),
            protocol=found.protocol_version,
            tool_count=len(names),
            tools=names,
            steps=self._shown(steps),
        )

    async def _follow(self) -> None:
        """Take what was just written: whoever wrote a record asks about that record."""
        if self._catch_up is not None:
            with suppress(BasculeError, TimeoutError):  # what is there is tried then
                await self._catch_up()

    def _steps(self, tell: Told) -> TrialSteps:
        return TrialSteps(self._clock, lambda step: tell(self._presentable(step)))

    def _shown(self, steps: TrialSteps) -> tuple[TrialStep, ...]:
        return tuple(map(self._presentable, steps.taken))

    def _presentable(self, step: TrialStep) -> TrialStep:
        """Return a step fit to be shown: a protocol's version is the server's own word."""
        return replace(step, message=self._bridge.presentable_text(step.message))

    def _lines(self, text: str) -> tuple[str, ...]:
        return self._bridge.presentable_lines(text, TRIAL_LINES)

    async def preview(self, server_id: str) -> tuple[ToolPreview, ...]:
        """Return every tool of a server with the decision of record and platform about it.

        Raise ServerUnavailable, in words fit to be shown, if it does not list any.
        """
        bridge = self._bridge
        await self._follow()
        try:
            listed = (await bridge.inspect(server_id)).listing.tools
        except BasculeError as error:
            reason = error.reason if isinstance(error, ServerUnavailable) else "unavailable"
            words = bridge.presentable_text(str(error))
            raise ServerUnavailable(words, reason=reason) from None
        tools = [tool for tool in listed if not bridge.names_credential(tool)]
        request = SessionRequest(server_ids=(server_id,))
        effective = compose(bridge.snapshot, None, request, environment=bridge.environment)
        access = compile_access(effective, {server_id: tools})
        decided = [(tool, access.decide(tool.model_name)) for tool in tools]
        return tuple(
            ToolPreview(
                tool=bridge.presentable_text(tool.name),
                name=bridge.presentable_text(tool.model_name),
                allowed=decision.allowed,
                layer=decision.layer,
                reason=decision.reason,
                claims_read_only=_claim(tool),
            )
            for tool, decision in decided
        )

    def _unfinished(self, server_id: str) -> str:
        """Say what a start is doing that takes longer than anybody waits for an answer."""
        found = (s.starting for s in self._bridge.statuses() if s.server_id == server_id)
        words = next(filter(None, found), "no answer yet")
        return f"not there yet: {words}; that goes on, test it again in a while"

    def _since(self, began: float) -> float:
        return round((self._clock.monotonic() - began) * 1000, 3)


def _claim(tool: ToolDescriptor) -> bool | None:
    hint = tool.annotations.get("readOnlyHint") if is_object(tool.annotations) else None
    return hint if isinstance(hint, bool) else None
