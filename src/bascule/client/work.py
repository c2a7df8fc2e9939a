"""What a node says to its work: each step as it ends, and at last what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from google.protobuf.message import DecodeError
from msgspec import to_builtins

from bascule.client.http import Unreachable
from bascule.model.json import JsonObject
from bascule.wire.api.trials import ToolPreview, Trial, TrialStep
from bascule.wire.pb import node_pb2 as pb
from bascule.wire.pb import records_pb2
from bascule.wire.protobuf import struct_message
from bascule.wire.strict_json import dumps

#: More than this of definitions is left out: people see tools in lists, and models at their node.
_MAX_DEFINITIONS = 1024 * 1024


class Asks(Protocol):
    """Calls methods of ``NodeService`` (``bascule.client.rpc.RpcSource``)."""

    async def ask(self, method: str, request: bytes) -> bytes:
        """Call one; raise ApiError or Unreachable."""
        ...


class Answers:
    """Answers one piece of work. Every answer says whether somebody still waits for the next."""

    def __init__(self, source: Asks, id: str) -> None:
        self._source = source
        self._id = id

    async def step(self, step: TrialStep) -> bool:
        """Say that a step has ended."""
        message = struct_message(pb.TrialStep, step)
        return await self._say(pb.FinishRequest(id=self._id, step=message))

    async def trial(self, trial: Trial, definitions: Sequence[JsonObject] = ()) -> bool:
        """Say how a trial went, and what the tools are, if they may be known from now on."""
        message = struct_message(pb.Trial, trial)
        return await self._say(
            pb.FinishRequest(id=self._id, trial=message, definitions=_texts(definitions))
        )

    async def previews(
        self,
        server_id: str,
        tools: Sequence[ToolPreview],
        definitions: Sequence[JsonObject] = (),
    ) -> bool:
        """Say what is decided about every tool."""
        shown = [pb.ToolPreview(**to_builtins(one)) for one in tools]
        message = pb.ToolPreviews(server_id=server_id, tools=shown)
        return await self._say(
            pb.FinishRequest(id=self._id, previews=message, definitions=_texts(definitions))
        )

    async def failure(self, code: str, words: str) -> bool:
        """Say why it was not done."""
        message = pb.Failure(code=code, message=words)
        return await self._say(pb.FinishRequest(id=self._id, failure=message))

    async def _say(self, said: pb.FinishRequest) -> bool:
        answer = await self._source.ask("Finish", said.SerializeToString())
        try:
            return pb.FinishResponse.FromString(answer).wanted
        except DecodeError:
            raise Unreachable("the answer to Finish cannot be read") from None


def _texts(definitions: Sequence[JsonObject]) -> list[records_pb2.Json]:
    texts = [dumps(one).decode() for one in definitions]
    if sum(map(len, texts)) > _MAX_DEFINITIONS:
        return []
    return [records_pb2.Json(text=text) for text in texts]
