"""Approvals for nodes: their calls are asked about, and claimed, where all approvals are.

Who a node is comes from its credential, and whom it may speak for from the tokens that it was
handed. What it says of a call is what a person is shown; whether the call may be made at all is
also decided here.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.asgi.errors import Refused
from bascule.audit.approval_steps import ApprovalRefused, unknown
from bascule.audit.approvals import Approvals
from bascule.audit.events import CallIntent
from bascule.auth.token_record import TokenRecord
from bascule.clock import Clock
from bascule.control.registry.service import RegistryService
from bascule.control.rpc.askers import Askers
from bascule.control.rpc.calls import Call, Unary
from bascule.control.rpc.judged_calls import CallDenied, judged
from bascule.control.rpc.node_names import refuse_other
from bascule.errors import BudgetExceeded, OutcomeUnknown, SessionRefused
from bascule.lifetime import Finishing
from bascule.model.approval import (
    Answer,
    Approval,
    ApprovalRequest,
    Approved,
    Denied,
    ExactCall,
    Waiting,
)
from bascule.model.json import JsonObject, is_object
from bascule.model.tool import definition_digest
from bascule.wire.pb import node_pb2 as pb
from bascule.wire.protobuf import struct_message, struct_of
from bascule.wire.strict_json import StrictJsonError, loads

#: How long one call waits for a decision at most; who wants to wait longer asks again.
MAX_WAIT_SECONDS = 20.0
#: Of every text that a node says of a call, but for what is shown whole.
_MAX_TEXT = 4_096
S = TypeVar("S", bound=Struct)
_intent = msgspec.json.Decoder(CallIntent).decode


class _Leaving(Struct, frozen=True):
    """A call that is about to leave a node (``LeavingCall``)."""

    token_id: str | None
    written: CallIntent
    reads: bool = False

    def intent(self) -> CallIntent:
        return self.written


class NodeApprovals:
    """The methods of ``NodeService`` about approvals."""

    def __init__(
        self, approvals: Approvals, service: RegistryService, askers: Askers, clock: Clock
    ) -> None:
        self._approvals = approvals
        self._service = service
        self._askers = askers
        self._clock = clock
        self._asking = Finishing()

    def methods(self) -> tuple[Unary[Any], ...]:
        """Return the methods, for the port."""
        return (
            Unary("Ask", pb.AskRequest, "approvals:ask", self._ask),
            Unary("Claim", pb.ClaimRequest, "approvals:ask", self._claim),
            Unary("GetApproval", pb.GetApprovalRequest, "approvals:ask", self._get),
            Unary("Withdraw", pb.WithdrawRequest, "approvals:ask", self._withdraw),
        )

    # --- asking

    async def _ask(self, message: pb.AskRequest, call: Call) -> bytes:
        node, request = self._node(call), _request(message.request)
        token = await self._askers.of(node, request.call)
        wait = _seconds(message.wait_ms) if message.HasField("wait_ms") else MAX_WAIT_SECONDS
        try:
            bound = await self._judged(request.call, request.arguments, token)
            asked = replace(request, policy_digest=bound.policy_digest, maker=token.made_by)
            answer = await self._answer(asked, wait, node)
        except (CallDenied, SessionRefused) as denied:
            answer = Denied(str(denied))
        except (BudgetExceeded, OutcomeUnknown) as error:
            return _unanswered(error)
        return _answer_message(answer, request.call).SerializeToString()

    async def _answer(self, request: ApprovalRequest, wait: float, node: str) -> Answer:
        """Wait for a decision; a node whose connection is lost meanwhile has not hung up."""
        answer = await self._asked(request, node)
        if not isinstance(answer, Waiting) or not wait:
            return answer
        await self._approvals.settled(answer.approval_id, wait)
        return await self._asked(replace(request, approval_id=answer.approval_id), node)

    async def _asked(self, request: ApprovalRequest, node: str) -> Answer:
        """Ask to the end, whoever hears it: who is cancelled there takes the question back."""
        return await self._asking.done(self._approvals.ask(request, 0, node=node))

    # --- claiming

    async def _claim(self, message: pb.ClaimRequest, call: Call) -> bytes:
        node, id = self._node(call), message.approval_id
        exact = _bounded(struct_of(ExactCall, message.call), "call")
        intent = _intent_of(message.intent, id, exact)
        token = await self._askers.of(node, exact)
        try:
            bound = await self._bound(node, id, exact, intent, token)
            leaving = _Leaving(token.id, replace(intent, timestamp=self._clock.now()))
            await self._approvals.claim(Approved(bound, id), bound, leaving, node=node)
        except (ApprovalRefused, CallDenied, SessionRefused) as refused:
            return pb.ClaimResponse(refusal=str(refused)).SerializeToString()
        return pb.ClaimResponse().SerializeToString()

    async def _bound(
        self, node: str, id: str, call: ExactCall, intent: CallIntent, token: TokenRecord
    ) -> ExactCall:
        """Return the call as it has to have been approved, decided on again; raise if it cannot."""
        found = await self._approvals.get(id)
        if found is None or found.call.asker != call.asker:
            raise unknown(id)
        if (found.node, found.claimed_by) == (node, intent.request_id):
            # It was decided on when it was claimed, and only the answer is wanted again.
            return replace(call, policy_digest=found.call.policy_digest)
        shown = await self._approvals.shown(id)
        if shown is None:
            if found.state in {"pending", "approved"}:
                raise ApprovalRefused("void", "what was asked cannot be read any more", found)
            return call  # and what became of it is said at the claim
        return await self._judged(call, _arguments(shown.arguments), token)

    async def _judged(
        self, call: ExactCall, arguments: JsonObject, token: TokenRecord
    ) -> ExactCall:
        """Decide on a call by the newest records, also those that another replica wrote."""
        await self._service.catch_up()
        return judged(self._service.snapshot(), call, arguments, acting=token.acts_for_users)

    # --- what became of it

    async def _get(self, message: pb.GetApprovalRequest, call: Call) -> bytes:
        found = await self._found(message.approval_id, call)
        if found is not None and found.state == "pending" and message.wait_ms:
            found = await self._approvals.settled(found.id, _seconds(message.wait_ms))
        if found is None:
            return pb.GetApprovalResponse().SerializeToString()
        shown = struct_message(pb.Approval, found)
        return pb.GetApprovalResponse(approval=shown).SerializeToString()

    async def _withdraw(self, message: pb.WithdrawRequest, call: Call) -> bytes:
        found = await self._found(message.approval_id, call)
        if found is not None and found.state == "pending":
            self._approvals.leave(found.id)
        return pb.WithdrawResponse().SerializeToString()

    async def _found(self, id: str, call: Call) -> Approval | None:
        """Return a question that a node may hear of: one of a client of its own."""
        node, found = self._node(call), await self._approvals.current(id)
        if found is None:
            return None
        try:
            await self._askers.of(node, found.call)
        except Refused:
            return None
        return found

    def _node(self, call: Call) -> str:
        refuse_other(self._service, call)
        return call.principal.name


def _seconds(wait_ms: int) -> float:
    return min(wait_ms / 1000, MAX_WAIT_SECONDS)


# --- what a node says


def _request(message: pb.ApprovalRequest) -> ApprovalRequest:
    """Read a question; raise Refused or InvalidRecord for one that is not what it says it is."""
    arguments = _arguments(message.payload)
    message.arguments.text = message.payload.decode()
    request = _bounded(struct_of(ApprovalRequest, message), "request")
    definition = request.definition
    if request.approval_id is None and (
        definition.get("name") != request.tool
        or definition_digest(definition) != request.definition_digest
    ):
        words = "is not the definition of this tool, with this digest"
        raise _wrong("request.definition", words)
    return replace(request, arguments=arguments)


def _arguments(payload: bytes) -> JsonObject:
    try:
        found = loads(payload)
    except StrictJsonError as error:
        raise _wrong("request.payload", f"is not valid JSON: {error}") from None
    if not is_object(found):
        raise _wrong("request.payload", "must be a JSON object")
    return found


def _intent_of(written: bytes, id: str, call: ExactCall) -> CallIntent:
    """Read the event that is written with a claim: of this very call, and no other."""
    try:
        intent = _bounded(_intent(written), "intent")
    except msgspec.MsgspecError as error:
        raise _wrong("intent", f"is not the event of a call: {error}") from None
    says = (
        intent.approval_id, intent.task_id, intent.caller, intent.token_id, intent.person,
        intent.server_id, intent.tool_name, intent.arguments_digest,
    )  # fmt: skip
    wanted = (
        id, call.task_id, call.caller, call.token_id, call.person,
        call.server_id, call.tool_name, call.arguments_digest,
    )  # fmt: skip
    if says != wanted or not intent.approved:
        raise _wrong("intent", "must be of the call, and name its approval")
    return intent


def _bounded(struct: S, where: str) -> S:
    for name in struct.__struct_fields__:
        value: object = getattr(struct, name)
        if isinstance(value, str) and len(value) > _MAX_TEXT:
            raise _wrong(f"{where}.{name}", f"has more than {_MAX_TEXT} characters")
    return struct


def _wrong(field: str, words: str) -> Refused:
    return Refused("invalid_request", f"{field}: {words}", details={"field": field})


# --- what it is told


def _answer_message(answer: Answer, call: ExactCall) -> pb.AskResponse:
    if isinstance(answer, Approved):
        approved = pb.Approved(
            call=struct_message(pb.ExactCall, call), approval_id=answer.approval_id
        )
        return pb.AskResponse(approved=approved)
    if isinstance(answer, Denied):
        return pb.AskResponse(denied=struct_message(pb.Denied, answer))
    if isinstance(answer, Waiting):
        return pb.AskResponse(waiting=struct_message(pb.Waiting, answer))
    return pb.AskResponse(unasked=pb.Unasked())


def _unanswered(error: BudgetExceeded | OutcomeUnknown) -> bytes:
    after = error.retry_after if isinstance(error, BudgetExceeded) else None
    said = pb.Unanswered(code=error.code, message=str(error), retry_after=after)
    return pb.AskResponse(unanswered=said).SerializeToString()
