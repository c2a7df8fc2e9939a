"""Approval of one call: not needed, denied by rule, or asked for.

Below: ``bascule.policy.approval`` gives the verdict, the ``Approver`` port decides. Above:
``call.py``. After a wait the session decides again: what was allowed when the question was asked
may not be any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bascule.model.decision import deny
from bascule.node.bridge.refused import denied, refuse
from bascule.node.bridge.table import Accepted, Target
from bascule.node.ports import ApprovalRequest
from bascule.policy.approval import Verdict, call_facts

if TYPE_CHECKING:
    from bascule.node.bridge.session import Session


async def obtain(session: Session, target: Target, accepted: Accepted, request_id: str) -> bool:
    """Return whether somebody approved the call; False when nobody had to."""
    verdict = _verdict(session, target, accepted)
    if verdict.action == "allow":
        return False
    await _ask(session, target, accepted, request_id, verdict)
    _verdict(session, await session.decide_again(target), accepted)
    return True


def _verdict(session: Session, target: Target, accepted: Accepted) -> Verdict:
    """Return what the rules say now; raise when they deny the call."""
    plan = target.grant.approval
    verdict = plan.fixed or plan.verdict(
        call_facts(
            target.grant.record, target.tool, accepted.arguments, session.caller, session.task_id
        )
    )
    if verdict.action == "deny":
        raise denied(deny(target.server_id, target.tool, "platform", "rule_denied", verdict.rule))
    return verdict


async def _ask(
    session: Session, target: Target, accepted: Accepted, request_id: str, verdict: Verdict
) -> None:
    approver = session.core.approver
    if approver is None:
        raise refuse("mcp_approval_required", f"{target.tool} needs approval: {verdict.rule}")
    question = ApprovalRequest(
        request_id=request_id,
        session_id=session.session_id,
        caller=session.caller,
        task_id=session.task_id,
        server=target.server_id,
        tool=target.tool,
        arguments=accepted.arguments,
        arguments_digest=accepted.digest,
        definition_digest=target.grant.tool.digest,
        revision=session.revision,
        rule=verdict.rule,
    )
    if not await approver.approve(question):
        raise refuse("mcp_approval_denied", f"approval of {target.tool} was denied")
