"""``NodeService``: all that nodes and the control plane say to each other.

The stream of a node has what it needs to serve: records with literal values, what checks the tokens
of its clients, and every change of either. Who it is comes from its credential.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

from bascule.asgi.errors import Refused
from bascule.auth.node_tokens import keys_handed_out
from bascule.clock import Clock
from bascule.control.api.nodes import Reports
from bascule.control.registry.service import RegistryService
from bascule.control.rpc.calls import Call, Service, Streaming, Unary
from bascule.control.rpc.handed_tokens import Handed, HandedTokens, KeptTokens
from bascule.control.rpc.node_names import refuse_other
from bascule.control.rpc.node_records import NodeRecords, Telling
from bascule.control.rpc.node_streams import NodeStreams
from bascule.control.rpc.secrets import SecretRpc
from bascule.control.rpc.told import welcome
from bascule.control.rpc.work import WorkRpc, refuse_more_works
from bascule.control.secrets import Secrets
from bascule.control.work.channel import WorkChannel
from bascule.control.work.rows import LocalRows
from bascule.db.errors import StoreUnavailable
from bascule.lifetime import Lifetime
from bascule.model.assignment import Assignment
from bascule.model.secret_use import SecretUse
from bascule.model.snapshot import Position
from bascule.wire.api.nodes import NodeSaid, NodeWords
from bascule.wire.pb import node_pb2 as pb
from bascule.wire.protobuf import struct_of

NAME = "bascule.registry.v1.NodeService"
#: How often it is looked whether tokens changed: a node refuses what was revoked soon after.
LOOK_SECONDS = 1.0
#: How often the nodes that follow here are noted, for whoever wants to know which live.
NOTE_SECONDS = 5.0


class NodeRpc(Lifetime):
    """The methods over one registry and the tokens of its server."""

    def __init__(
        self,
        service: RegistryService,
        tokens: KeptTokens,
        clock: Clock,
        works: WorkChannel | None = None,
        *,
        secrets: Secrets | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """Serve a registry; without ``works`` no node is asked to do anything."""
        self._service = service
        self._secrets = None if secrets is None else SecretRpc(secrets, service.tick, self._serves)
        self._clock = clock
        self._look_seconds = look_seconds
        self._reports = Reports(service, clock)
        self._handed = HandedTokens(tokens)
        self._records = NodeRecords(service)
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
        if self._secrets is not None:
            self._secrets.close()
            self._secrets = None
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        self._upkeep = []

    def service(self, *further: Unary[Any]) -> Service:
        """Return the service, for the port; ``further`` are methods that others have."""
        follow = Streaming("Follow", pb.FollowRequest, "registry:read_secrets", self._follow)
        report = Unary("Report", pb.ReportRequest, "status:write", self._report)
        secrets = () if self._secrets is None else self._secrets.methods()
        return Service(NAME, (follow, report, self._works.method(), *secrets, *further))

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(seconds)
            with suppress(StoreUnavailable):  # what nodes have holds, and it is tried again
                if self.streams:
                    await work()

    async def _look(self) -> None:
        """Look once for all who follow; whoever has to hear of it is woken by a bookmark."""
        assigned = await self._service.assignments.refresh()
        if await self._handed.look() or assigned:
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
        refuse_more_works(request.works)
        await self._handed.look()
        since = None
        if request.HasField("since_revision"):
            since = Position(request.store_id, request.since_revision, request.mark)
        telling = await self._records.begun(call.principal.name, since, request.part)
        return self._told(request, call, telling)

    async def _told(
        self, request: pb.FollowRequest, call: Call, telling: Telling
    ) -> AsyncGenerator[bytes, None]:
        node, version, assigned = call.node, request.tokens_version, telling.assignment
        opened = self.streams.open(node, request.process, request.version)
        handing = self._works.handing(node, telling.bell.ring, request.works)
        with opened as stream, handing as hand:
            self._service.standing.see(node)
            async with aclosing(telling.events):
                yield self._welcome(node, assigned)
                handed = await self._handed.of(telling.tasks)
                secrets, number = self._secrets_at(request.secrets_version), self._secrets_number
                for part in (*_unless(version, handed), *secrets, *telling.first):
                    yield part
                if telling.head is None:
                    hand.begin()
                async for event in telling.events:
                    version = handed.version
                    stream.refuse_replaced()
                    await call.refuse_ended((event.revision, event.mark, self._handed.number))
                    said = await telling.after(event)
                    if telling.assignment != assigned:
                        assigned = telling.assignment
                        yield self._welcome(node, assigned)
                    handed = await self._handed.of(telling.tasks)
                    secrets = self._secrets_after(number, telling.secrets)
                    number = self._secrets_number
                    for part in (*_unless(version, handed), *secrets, *said):
                        yield part
                    if event.revision == telling.head:
                        hand.begin()
                    for part in self._works.messages(hand):
                        yield part

    def _welcome(self, node: str, assigned: Assignment) -> bytes:
        seconds, now = self._service.bookmark_seconds, self._clock.now()
        return welcome(node, seconds, self._keys, assigned, now=now)

    def _secrets_at(self, version: str) -> tuple[bytes, ...]:
        return () if self._secrets is None else self._secrets.begin(version)

    def _secrets_after(self, number: int, known: frozenset[str] | None) -> tuple[bytes, ...]:
        return () if self._secrets is None else self._secrets.after(number, known)

    @property
    def _secrets_number(self) -> int:
        return 0 if self._secrets is None else self._secrets.number

    async def _serves(self, call: Call, use: SecretUse) -> bool:
        """Say whether a node is assigned a server or backend now."""
        assignments = self._service.assignments
        await assignments.refresh()
        return assignments.share(call.principal.name).serves(use.kind, use.id)

    # --- the way back

    async def _report(self, request: pb.ReportRequest, call: Call) -> bytes:
        said, name = struct_of(NodeSaid, request), call.node
        refuse_other(self._service, call)
        words = NodeWords(name, said.state, said.revision, said.servers, said.reason or None)
        heard = await self._reports.take(words, name)
        return pb.ReportResponse(revision=heard.revision).SerializeToString()


def _unless(version: str, handed: Handed) -> tuple[bytes, ...]:
    """Return tokens as messages, unless the node has them."""
    return () if version == handed.version else handed.messages
