"""Nodes of other processes, as the registry's API asks them: through the work channel."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from bascule.asgi.errors import Refused
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.registry.service import RegistryService
from bascule.control.work.channel import WorkChannel
from bascule.control.work.far_tools import FarTools
from bascule.control.work.jobs import (
    NOT_DONE,
    Answer,
    DraftTrial,
    Job,
    Preview,
    Previewed,
    ServerTrial,
    Stepped,
    Tried,
    Undone,
)
from bascule.control.work.questions import NotTaken
from bascule.errors import BasculeError, ServerUnavailable
from bascule.model.json import JsonObject
from bascule.model.server import ServerRecord
from bascule.wire.api.trials import ToolPreview, Trial, TrialStep
from bascule.wire.records import encode

#: How many nodes are asked in turn where one does not take its work.
_MOST_ASKED = 3
_SERVES = frozenset({"connected", "degraded"})
_NOBODY = (
    "no node is connected to this control plane, and only a node reaches MCP servers: start one "
    "with bascule node serve"
)

_UNASSIGNED = (
    "no node that is connected is assigned server {!r}, or all of them: bascule nodes assign"
)


class FarNodes:
    """The nodes that follow this control plane, at any of its replicas."""

    def __init__(
        self, service: RegistryService, channel: WorkChannel, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._service = service
        self._channel = channel
        self._clock = clock
        #: What nodes said of tools when they were last asked about their servers.
        self.tools = FarTools(service)

    def any(self, server_id: str) -> FarNode:
        """Return a node that lives and is assigned a server; raise Refused.

        One that is connected to the server comes before others.
        """
        living = [*self._channel.living()]
        if not living:
            raise Refused(NOT_DONE, _NOBODY)
        living = [node for node in living if self._is_assigned(node, server_id)]
        if not living:
            raise Refused(NOT_DONE, _UNASSIGNED.format(server_id))
        words = self._service.standing.words_on(server_id)
        random.shuffle(living)  # those that are alike share the work

        def rank(node: str) -> int:
            word = words.get(node)
            return 2 if word is None else int(word.state not in _SERVES)

        return self._node(sorted(living, key=rank)[:_MOST_ASKED])

    def named(self, name: str, server_id: str) -> FarNode:
        """Return the node of a name; raise Refused where it is not known, or not connected.

        So for a server of the registry that is not assigned to it: the record may have values that
        this node is not to see. What is not in the registry has those of its author alone.
        """
        details = {"parameter": "node", "node": name}
        known = server_id in self._service.snapshot().servers
        if self._channel.lives(name):
            if known and not self._is_assigned(name, server_id):
                words = f"node: {name!r} is not assigned server {server_id!r}"
                raise Refused(NOT_DONE, words, details=details)
            return self._node([name])
        if any(one.node == name for one in self._service.standing.nodes()):
            raise Refused(NOT_DONE, f"node: {name!r} is not connected now", details=details)
        raise Refused("not_found", f"node: there is no node {name!r}", details=details)

    def _is_assigned(self, node: str, server_id: str) -> bool:
        return self._service.assignments.share(node).serves("server", server_id)

    def _node(self, names: Sequence[str]) -> FarNode:
        return FarNode(self._channel, names, self._clock, self.tools.learn)


class FarNode:
    """The ``NodeFace`` of a node elsewhere; of several, the first that takes its work."""

    def __init__(
        self,
        channel: WorkChannel,
        names: Sequence[str],
        clock: Clock,
        learn: Callable[[str, Sequence[JsonObject]], None] | None = None,
    ) -> None:
        """Ask nodes of these names; ``learn`` is told which tools a server has."""
        self._channel = channel
        self._names = names
        self._clock = clock
        self._learn = learn

    async def test(self, server_id: str, tell: Callable[[TrialStep], None]) -> Trial:
        """Have it connect to a server and list its tools."""
        return await self._trial(ServerTrial(server_id), tell)

    async def try_out(self, record: ServerRecord, tell: Callable[[TrialStep], None]) -> Trial:
        """Have it do the same with a record that is not in the registry."""
        return await self._trial(DraftTrial(encode(record)), tell)

    async def preview(self, server_id: str) -> tuple[ToolPreview, ...]:
        """Have it say what is decided about every tool of a server."""
        job = Preview(server_id)
        answer = await self._answer(job, lambda _: None)
        if isinstance(answer, Previewed):
            self._know(job, answer.definitions)
            return answer.tools
        raise _unexpected(answer)

    async def _trial(self, job: Job, tell: Callable[[TrialStep], None]) -> Trial:
        """Return how a trial went; one that its node did not finish has failed."""
        began, steps = self._clock.monotonic(), list[TrialStep]()

        def told(answer: Answer) -> None:
            if isinstance(answer, Stepped):
                steps.append(answer.step)
                tell(answer.step)

        answer = await self._answer(job, told)
        if isinstance(answer, Tried):
            self._know(job, answer.definitions)
            return answer.trial
        took = round((self._clock.monotonic() - began) * 1000, 3)
        words = str(_unexpected(answer))
        return Trial(ok=False, duration_ms=took, error=words, steps=tuple(steps))

    def _know(self, job: Job, definitions: Sequence[JsonObject]) -> None:
        if self._learn is not None and definitions and not isinstance(job, DraftTrial):
            self._learn(job.server_id, definitions)

    async def _answer(self, job: Job, told: Callable[[Answer], None]) -> Answer:
        *others, last = self._names
        for name in others:
            try:
                return await self._channel.ask(name, job, told)
            except NotTaken:
                continue
        return await self._channel.ask(last, job, told)


def _unexpected(answer: Answer) -> BasculeError:
    """Return what to raise for an answer that is not the one to the question."""
    if not isinstance(answer, Undone):
        return Refused(NOT_DONE, "the node answered something else than it was asked")
    if answer.code == NOT_DONE:
        return Refused(NOT_DONE, answer.message)
    return ServerUnavailable(answer.message, reason=answer.code)
