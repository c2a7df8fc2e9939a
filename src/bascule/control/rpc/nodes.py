"""``NodeService``: all that nodes and the control plane say to each other.

The stream of a node has what it needs to serve: records with literal values, what checks the tokens
of its clients, and every change of either. Who it is comes from its credential.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, TypeAlias

from msgspec import Struct

from bascule.asgi.errors import Refused
from bascule.auth.node_tokens import keys_handed_out
from bascule.clock import Clock
from bascule.control.api.nodes import Reports
from bascule.control.registry.encoded_events import EncodedEvents, Form
from bascule.control.registry.hub import Bell
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Bookmark, Event
from bascule.control.rpc.calls import Call, Service, Streaming, Unary
from bascule.control.rpc.handed_tokens import HandedTokens, KeptTokens
from bascule.control.rpc.node_names import refuse_other
from bascule.control.rpc.node_streams import NodeStreams
from bascule.control.rpc.told import EncodedSnapshot, change_messages, welcome
from bascule.control.rpc.work import WorkRpc
from bascule.control.work.channel import WorkChannel
from bascule.control.work.rows import LocalRows
from bascule.db.errors import StoreUnavailable
from bascule.lifetime import Lifetime
from bascule.model.snapshot import Position
from bascule.wire.api.nodes import NodeSaid, NodeWords
from bascule.wire.pb import node_pb2 as pb
from bascule.wire.protobuf import struct_of

NAME = "bascule.registry.v1.NodeService"
#: How often it is looked whether tokens changed: a node refuses what was revoked soon after.
LOOK_SECONDS = 1.0
#: How often the nodes that follow here are noted, for whoever wants to know which live.
NOTE_SECONDS = 5.0
_Messages: TypeAlias = tuple[bytes, ...]


class _Beginning(Struct, frozen=True):
    """What a stream begins with: messages, then events; at ``head`` all there was is said."""

    form: Form
    events: AsyncGenerator[Event, None]
    #: Wakes this stream alone.
    bell: Bell
    first: _Messages = ()
    head: int | None = None


class NodeRpc(Lifetime):
    """The methods over one registry and the tokens of its server."""

    def __init__(
        self,
        service: RegistryService,
        tokens: KeptTokens,
        clock: Clock,
        works: WorkChannel | None = None,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """Serve a registry; without ``works`` no node is asked to do anything."""
        self._service = service
        self._clock = clock
        self._look_seconds = look_seconds
        self._reports = Reports(service, clock)
        self._handed = HandedTokens(tokens)
        self._encoded = EncodedEvents(change_messages)
        self._snapshot = EncodedSnapshot()
        self._keys = keys_handed_out(tokens.key_for)
        self._works = WorkRpc(works or WorkChannel(LocalRows(clock), service, clock))
        #: The nodes that follow here.
        self.streams = NodeStreams(self._note_second)
        self._upkeep: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Look after tokens, and note who follows, from now on."""
        if not self._upkeep:
            every = (self._look_seconds, self._look), (NOTE_SECONDS, self._note)
            self._upkeep = [asyncio.create_task(self._every(*one)) for one in every]

    async def close(self) -> None:
        """Stop that."""
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        self._upkeep = []

    def service(self, *further: Unary[Any]) -> Service:
        """Return the service, for the port; ``further`` are methods that others have."""
        follow = Streaming("Follow", pb.FollowRequest, "registry:read_secrets", self._follow)
        report = Unary("Report", pb.ReportRequest, "status:write", self._report)
        return Service(NAME, (follow, report, self._works.method(), *further))

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(seconds)
            with suppress(StoreUnavailable):  # what nodes have holds, and it is tried again
                if self.streams:
                    await work()

    async def _look(self) -> None:
        """Look once for all who follow; whoever has to hear of it is woken by a bookmark."""
        if await self._handed.look():
            self._service.tick()

    async def _note(self) -> None:
        await self._service.standing.note([*self.streams])

    def _note_second(self, node: str) -> None:
        self._service.standing.doubled[node] = self._clock.now()

    # --- following

    async def _follow(self, request: pb.FollowRequest, call: Call) -> AsyncGenerator[bytes, None]:
        refuse_other(self._service, call)
        if not request.process:
            words = "process: a name is needed, random for each process"
            raise Refused("invalid_request", words, details={"field": "process"})
        await self._handed.look()
        if request.HasField("since_revision"):
            since = Position(request.store_id, request.since_revision, request.mark)
            beginning = await self._after(since)
        else:
            beginning = await self._whole()
        return self._told(request, call, beginning)

    async def _whole(self) -> _Beginning:
        view, bell = self._service.view, Bell()
        events = await self._service.watch(view.position, bell=bell)
        return _Beginning(_form(view.store_id), events, bell, await self._snapshot.of(view))

    async def _after(self, since: Position) -> _Beginning:
        bell = Bell()
        events = await self._service.watch(since, bell=bell)
        head = self._service.view.position
        form = _form(head.store_id)
        if head.revision > since.revision:
            return _Beginning(form, events, bell, head=head.revision)
        bookmark = Bookmark(head.revision, head.mark)
        return _Beginning(form, events, bell, await self._encoded.of(bookmark, form))

    async def _told(
        self, request: pb.FollowRequest, call: Call, beginning: _Beginning
    ) -> AsyncGenerator[bytes, None]:
        node, events, version = call.node, beginning.events, request.tokens_version
        opened = self.streams.open(node, request.process, request.version)
        with opened as stream, self._works.handing(node, beginning.bell.ring) as hand:
            async with aclosing(events):
                yield welcome(node, self._service.bookmark_seconds, self._keys)
                for part in (*self._tokens_after(version), *beginning.first):
                    yield part
                version = self._handed.version
                if beginning.head is None:
                    hand.begin()
                async for event in events:
                    stream.refuse_replaced()
                    await call.refuse_ended((event.revision, event.mark, self._handed.number))
                    tokens = self._tokens_after(version)
                    version = self._handed.version
                    for part in (*tokens, *await self._messages(event, beginning)):
                        yield part
                    if event.revision == beginning.head:
                        hand.begin()
                    for part in self._works.messages(hand):
                        yield part

    def _tokens_after(self, version: str) -> _Messages:
        return () if version == self._handed.version else self._handed.messages

    async def _messages(self, event: Event, beginning: _Beginning) -> _Messages:
        messages = await self._encoded.of(event, beginning.form)
        if event.revision == beginning.head and not isinstance(event, Bookmark):
            bookmark = Bookmark(event.revision, event.mark)
            messages += await self._encoded.of(bookmark, beginning.form)
        return messages

    # --- the way back

    async def _report(self, request: pb.ReportRequest, call: Call) -> bytes:
        said, name = struct_of(NodeSaid, request), call.node
        refuse_other(self._service, call)
        words = NodeWords(name, said.state, said.revision, said.servers, said.reason or None)
        heard = await self._reports.take(words, name)
        return pb.ReportResponse(revision=heard.revision).SerializeToString()


def _form(store_id: str) -> Form:
    return Form(store_id, records=True, literals=True)
