"""Approvals at the control plane, as a node asks for them over gRPC: each method is one call."""

from __future__ import annotations

from typing import Protocol

import msgspec
from google.protobuf.message import DecodeError

from bascule.audit.approval_steps import ApprovalRefused
from bascule.audit.event_bytes import event_json
from bascule.audit.events import CallIntent
from bascule.client.http import Unreachable
from bascule.errors import BudgetExceeded, InvalidRecord, OutcomeUnknown
from bascule.model.approval import (
    Answer,
    Approval,
    ApprovalRequest,
    Approved,
    Denied,
    ExactCall,
    Unasked,
    Waiting,
)
from bascule.wire.pb import node_pb2 as pb
from bascule.wire.protobuf import message_of, struct_message, struct_of

#: How long an answer may take on its way, besides what is waited for.
ANSWER_SECONDS = 5.0
#: A question of more bytes is not taken by the control plane; nobody could read it, either.
MAX_BYTES = 3 * 1024 * 1024
_UNREADABLE = "the control plane's answer cannot be read"


class Asks(Protocol):
    """Makes a call with one answer (``bascule.client.rpc.RpcSource`` does)."""

    async def ask(self, method: str, request: bytes, seconds: float = ...) -> bytes:
        """Return the answer; raise Unreachable or ApiError."""
        ...


class ApprovalCalls:
    """The calls. All raise Unreachable, and ApiError for what is refused."""

    def __init__(self, source: Asks) -> None:
        self._source = source

    async def ask(self, request: ApprovalRequest, wait: float) -> Answer:
        """Return the answer to a question, or that there is none after so many seconds.

        Raise BudgetExceeded, or OutcomeUnknown where the approval was used already.
        """
        said = pb.AskRequest(request=_question(request), wait_ms=_milliseconds(wait))
        if said.ByteSize() > MAX_BYTES:
            return Denied(f"a question of {said.ByteSize()} bytes is too long for anybody to read")
        data = await self._ask("Ask", said.SerializeToString(), wait)
        try:
            return _answer(pb.AskResponse.FromString(data), request)
        except (DecodeError, InvalidRecord):
            raise Unreachable(_UNREADABLE) from None

    async def claim(self, id: str, call: ExactCall, intent: CallIntent) -> None:
        """Claim an approval; the same again where no answer came. Raise ApprovalRefused."""
        exact = struct_message(pb.ExactCall, call)
        said = pb.ClaimRequest(approval_id=id, call=exact, intent=event_json(intent))
        data = await self._ask("Claim", said.SerializeToString())
        try:
            answer = pb.ClaimResponse.FromString(data)
        except DecodeError:
            raise Unreachable(_UNREADABLE) from None
        if answer.HasField("refusal"):
            raise ApprovalRefused("void", answer.refusal)

    async def approval(self, id: str, wait: float = 0.0) -> Approval | None:
        """Return what became of a question, after so many seconds if nobody has decided before."""
        said = pb.GetApprovalRequest(approval_id=id, wait_ms=_milliseconds(wait))
        data = await self._ask("GetApproval", said.SerializeToString(), wait)
        try:
            answer = pb.GetApprovalResponse.FromString(data)
            return struct_of(Approval, answer.approval) if answer.HasField("approval") else None
        except (DecodeError, InvalidRecord):
            raise Unreachable(_UNREADABLE) from None

    async def withdraw(self, id: str) -> None:
        """Say that whoever asked has hung up."""
        await self._ask("Withdraw", pb.WithdrawRequest(approval_id=id).SerializeToString())

    async def _ask(self, method: str, request: bytes, wait: float = 0.0) -> bytes:
        return await self._source.ask(method, request, ANSWER_SECONDS + wait)


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))


def _question(request: ApprovalRequest) -> pb.ApprovalRequest:
    plain = msgspec.structs.asdict(request)
    del plain["arguments"]  # they are the payload
    if request.approval_id is not None:
        del plain["definition"]
    return message_of(pb.ApprovalRequest, plain)


def _answer(said: pb.AskResponse, request: ApprovalRequest) -> Answer:
    match said.WhichOneof("answer"):
        case "approved":
            return _approved(said.approved, request.call)
        case "denied":
            return struct_of(Denied, said.denied)
        case "waiting":
            return struct_of(Waiting, said.waiting)
        case "unasked":
            return Unasked()
        case "unanswered":
            raise _unanswered(said.unanswered)
        case _:
            raise Unreachable(_UNREADABLE)


def _approved(said: pb.Approved, call: ExactCall) -> Answer:
    found = struct_of(ExactCall, said.call)
    if not said.approval_id or found.differences(call):
        return Denied("the control plane speaks of another call")
    return Approved(call, said.approval_id)


def _unanswered(said: pb.Unanswered) -> BudgetExceeded | OutcomeUnknown:
    if said.code == BudgetExceeded.code:
        return BudgetExceeded(said.message, retry_after=said.retry_after)
    return OutcomeUnknown(said.message)
