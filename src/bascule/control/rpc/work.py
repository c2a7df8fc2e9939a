"""Work on the stream of a node, and ``Finish``, by which it comes back.

What a node says is shown to people, so its texts are made fit for that here as well: one node may
be in the wrong hands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from bascule.asgi.errors import Refused
from bascule.control.rpc.calls import Call, Unary
from bascule.control.work.channel import WorkChannel
from bascule.control.work.hands import Cancelled, Hand, Order
from bascule.control.work.jobs import (
    Answer,
    DraftTrial,
    Preview,
    Previewed,
    ServerTrial,
    Stepped,
    Tried,
    Undone,
    job_of,
)
from bascule.model.json import JsonObject
from bascule.policy.characters import render_safe
from bascule.wire.api.trials import ToolPreview, ToolPreviews, Trial, TrialStep
from bascule.wire.pb import node_pb2 as pb
from bascule.wire.protobuf import record_message, struct_of

#: How long an id may be that is looked for, and a text that is shown.
_MAX_ID = 64
_MAX_TEXT = 4_096
#: How many pieces of work a node may be at.
_MAX_WORKS = 64
#: How many tools and lines an answer may have.
_MAX_ITEMS = 10_000
_MAX_LINES = 100


class WorkRpc:
    """Hands work out on streams, and takes what comes of it."""

    def __init__(self, channel: WorkChannel) -> None:
        self._channel = channel

    def method(self) -> Unary[pb.FinishRequest]:
        """Return the method, for the service."""
        return Unary("Finish", pb.FinishRequest, "status:write", self._finish)

    def handing(
        self, node: str, call: Callable[[], None], works: Sequence[str]
    ) -> AbstractContextManager[Hand]:
        """Hand out what waits for a node during the block (``WorkChannel.handing``)."""
        return self._channel.handing(node, call, works)

    def messages(self, hand: Hand) -> Iterator[bytes]:
        """Yield what a node is to be sent now."""
        for order in hand.orders():
            yield pb.FollowResponse(work=_work(order)).SerializeToString()

    async def _finish(self, request: pb.FinishRequest, call: Call) -> bytes:
        if not 0 < len(request.id) <= _MAX_ID:
            words = f"id: the id of a piece of work is needed, of at most {_MAX_ID} characters"
            raise Refused("invalid_request", words, details={"field": "id"})
        reception = await self._channel.answer(request.id, call.node, _answer(request))
        if reception == "foreign":
            words = "id: this piece of work was given to another node"
            raise Refused("forbidden", words, details={"field": "id"})
        return pb.FinishResponse(wanted=reception == "kept").SerializeToString()


def refuse_more_works(works: Sequence[str]) -> None:
    """Raise Refused for what no node that is well says that it is at."""
    if len(works) > _MAX_WORKS or any(not 0 < len(id) <= _MAX_ID for id in works):
        words = f"works: at most {_MAX_WORKS} ids, each of 1 to {_MAX_ID} characters"
        raise Refused("invalid_request", words, details={"field": "works"})


# --- what a node is sent


def _work(order: Order) -> pb.Work:
    if isinstance(order, Cancelled):
        return pb.Work(id=order.id, cancel=pb.CancelWork())
    job, left = job_of(order.job), max(1, int(order.seconds * 1000))
    match job:
        case ServerTrial(server_id):
            return pb.Work(id=order.id, timeout_ms=left, test=pb.TestServer(server_id=server_id))
        case DraftTrial(record):
            message = record_message("server", record)
            draft = pb.TryOut(server=message)  # pyright: ignore[reportArgumentType] - of that kind
            return pb.Work(id=order.id, timeout_ms=left, try_out=draft)
        case Preview(server_id):
            wanted = pb.PreviewTools(server_id=server_id)
            return pb.Work(id=order.id, timeout_ms=left, preview=wanted)


# --- what a node says


class _Failure(Struct, frozen=True):
    code: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    message: str


def _answer(request: pb.FinishRequest) -> Answer:
    """Return what a request says, fit to be shown; raise InvalidRecord or Refused."""
    match request.WhichOneof("answer"):
        case "step":
            return Stepped(_step(struct_of(TrialStep, request.step)))
        case "trial":
            return Tried(_trial(struct_of(Trial, request.trial)), _definitions(request))
        case "previews":
            found = struct_of(ToolPreviews, request.previews)
            return Previewed(_previewed(found), _definitions(request))
        case "failure":
            failed = struct_of(_Failure, request.failure)
            return Undone(failed.code, _text(failed.message))
        case _:
            words = "answer: a step, a trial, previews or a failure is needed"
            raise Refused("invalid_request", words, details={"field": "answer"})


def _step(step: TrialStep) -> TrialStep:
    return replace(step, message=_text(step.message))


def _trial(trial: Trial) -> Trial:
    _refuse_more("trial.tools", len(trial.tools), _MAX_ITEMS)
    _refuse_more("trial.steps", len(trial.steps), _MAX_LINES)
    _refuse_more("trial.stderr", len(trial.stderr), _MAX_LINES)
    return replace(
        trial,
        protocol=None if trial.protocol is None else _text(trial.protocol),
        tools=tuple(map(_text, trial.tools)),
        error=None if trial.error is None else _text(trial.error),
        steps=tuple(map(_step, trial.steps)),
        stderr=tuple(map(_text, trial.stderr)),
    )


def _previewed(found: ToolPreviews) -> tuple[ToolPreview, ...]:
    _refuse_more("previews.tools", len(found.tools), _MAX_ITEMS)
    return tuple(
        replace(
            one,
            tool=_text(one.tool),
            name=_text(one.name),
            layer=_text(one.layer),
            reason=_text(one.reason),
        )
        for one in found.tools
    )


class _Definitions(Struct, frozen=True):
    definitions: tuple[dict[str, Any], ...]


def _definitions(request: pb.FinishRequest) -> tuple[JsonObject, ...]:
    _refuse_more("definitions", len(request.definitions), _MAX_ITEMS)
    alone = pb.FinishRequest(definitions=request.definitions)
    return struct_of(_Definitions, alone).definitions


def _text(text: str) -> str:
    return render_safe(text[:_MAX_TEXT])


def _refuse_more(field: str, count: int, most: int) -> None:
    if count > most:
        raise Refused(
            "invalid_request", f"{field}: at most {most} are taken", details={"field": field}
        )
