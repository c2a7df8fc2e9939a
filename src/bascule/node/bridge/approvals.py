"""Approval of one call: not needed, denied by rule, or asked for; and its claim.

After every wait a call is decided again: what was allowed before it may not be any more.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from bascule.audit.approval_steps import ApprovalRefused
from bascule.errors import BasculeError
from bascule.model.approval import (
    ApprovalRequest,
    Approved,
    Approving,
    Denied,
    ExactCall,
    Unasked,
    Waiting,
    asking_of,
)
from bascule.model.decision import deny
from bascule.node.bridge.refusal import Refused, denied, refuse
from bascule.node.bridge.table import Accepted, Target
from bascule.policy.approval import ApprovalPlan, Verdict, call_facts, user_facts
from bascule.policy.approval_digest import policy_digest

if TYPE_CHECKING:
    from bascule.node.bridge.budgets import Passage
    from bascule.node.bridge.session import Session


async def obtain(
    passage: Passage, target: Target, accepted: Accepted, approving: Approving
) -> tuple[Target, Accepted, Approved | None]:
    """Return target and arguments as they stand now, and the approval, where one is needed."""
    session, asking = passage.session, asking_of(approving)
    verdict = _verdict(session, target, accepted)
    if verdict.action == "allow" and asking.approval_id is None:
        return target, accepted, None
    request = _request(passage, target, accepted, verdict, asking.approval_id)
    wait = passage.patience(asking.wait)
    answer = await session.core.approvals.ask(request, wait, asking.told)
    passage.approval_id = answer.approval_id
    if not isinstance(answer, Approved):
        raise _not_approved(target, answer, verdict.rule)
    again = decide_again(session, target, accepted, granted=True)
    return *await passage.within(again), answer


def _not_approved(target: Target, answer: Denied | Waiting | Unasked, rule: str) -> Refused:
    id = answer.approval_id
    if isinstance(answer, Denied):
        words = f"{target.tool} was not approved: {answer.reason}"
        details = None if id is None else {"approval_id": id}
        return refuse("mcp_approval_denied", words, details=details)
    words = f"{target.tool} needs approval: {rule}"
    if isinstance(answer, Unasked):
        nobody = "nobody who could be asked here (approver=) has agreed"
        return refuse("mcp_approval_required", f"{words}; {nobody}")
    details = {"approval_id": id, "expires_at": answer.expires_at}
    return refuse("mcp_approval_required", f"{words}; the question is {id}", details=details)


async def decide_again(
    session: Session, target: Target, accepted: Accepted, *, granted: bool
) -> tuple[Target, Accepted]:
    """Refuse a call that was allowed before a wait and is not any more.

    Its arguments are judged by the tool, the rules and the hygiene of now. Whether an approval is
    for the call as it is now is found out when it is claimed.
    """
    current = await session.current(target)
    if current is target:
        return target, accepted
    again = current.accept(accepted.arguments, session.core.scanner)
    verdict = _verdict(session, current, again)
    if verdict.action != "allow" and not granted:
        message = f"{target.tool} needs approval since the rules changed: {verdict.rule}"
        raise refuse("mcp_approval_required", message)
    return current, again


def claim(passage: Passage, target: Target, accepted: Accepted) -> Awaitable[None]:
    """Claim the approval of a call that is about to leave, and have its intent written."""
    return _claimed(passage, exact_call(passage.session, target, accepted))


async def _claimed(passage: Passage, call: ExactCall) -> None:
    core, approved = passage.session.core, passage.approved
    if approved is None:
        raise AssertionError("only a call that was approved has something to claim")
    leaving = passage.leaving()
    try:
        written = await core.approvals.claim(approved, call, leaving)
        waiting = None if written else core.ledger.intent(leaving)
    except BasculeError as error:
        passage.left = False  # and it does not
        if not isinstance(error, ApprovalRefused):
            raise
        raise refuse("mcp_approval_denied", f"{call.tool_name}: {error}") from None
    if waiting is not None:
        await waiting


def refuse_other(session: Session, target: Target, accepted: Accepted, approved: Approved) -> None:
    """Refuse a call that was claimed, and would be another one by now."""
    changed = approved.call.differences(exact_call(session, target, accepted))
    if changed:
        raise refuse("mcp_approval_denied", f"another {changed[0]} was approved")


def exact_call(session: Session, target: Target, accepted: Accepted) -> ExactCall:
    """Return what an approval has to be for, so that this call may leave."""
    rule = _verdict(session, target, accepted).rule
    return ExactCall(
        task_id=session.task_id,
        server_id=target.server_id,
        tool_name=target.tool,
        arguments_digest=accepted.digest,
        definition_digest=target.grant.tool.digest,
        policy_digest=policy_digest(target.grant.record, target.grant.approval, rule),
        rule=rule,
        person=session.person,
        caller=session.caller,
        token_id=session.token_id,
    )


def _verdict(session: Session, target: Target, accepted: Accepted) -> Verdict:
    """Return what the rules say now; raise when they deny the call."""
    plan = target.grant.approval
    verdict = plan.fixed or plan.verdict(
        call_facts(
            target.grant.record,
            target.tool,
            accepted.arguments,
            session.caller,
            session.task_id,
            user_facts(session.person, session.effective.user.groups),
        )
    )
    if verdict.action == "deny":
        raise denied(deny(target.server_id, target.tool, "platform", "rule_denied", verdict.rule))
    return verdict


def _request(
    passage: Passage, target: Target, accepted: Accepted, verdict: Verdict, approval_id: str | None
) -> ApprovalRequest:
    session = passage.session
    return ApprovalRequest(
        request_id=passage.request_id,
        session_id=session.session_id,
        caller=session.caller,
        task_id=session.task_id,
        server=target.server_id,
        tool=target.tool,
        arguments=accepted.arguments,
        arguments_digest=accepted.digest,
        definition_digest=target.grant.tool.digest,
        revision=session.revision,
        rule=_in_words(target.grant.approval, verdict.rule),
        policy_digest=policy_digest(target.grant.record, target.grant.approval, verdict.rule),
        person=session.person,
        token_id=session.token_id,
        maker=session.maker,
        payload=accepted.payload,
        definition=target.grant.tool.definition,
        approval_id=approval_id,
    )


def _in_words(plan: ApprovalPlan, rule: str) -> str:
    """Return the rule that decided with its condition, for whoever is asked."""
    conditions = (
        one.condition.text
        for policy in plan.policies
        for one in policy.rules
        if one.condition is not None and rule == one.name
    )
    return ": ".join((rule, *conditions))
