"""Approval of one call: not needed, denied by rule, or asked for.

Below: ``bascule.policy.approval`` gives the verdict, the ``Approver`` port decides. Above:
``call.py``. After a wait the session decides again: what was allowed when the question was asked
may not be any more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bascule.model.decision import deny
from bascule.node.bridge.refused import denied, refuse
from bascule.node.bridge.table import Accepted, Target
from bascule.node.ports import ApprovalRequest
from bascule.policy.approval import Verdict, call_facts

if TYPE_CHECKING:
    from bascule.node.bridge.session import Session


async def obtain(
    session: Session, target: Target, accepted: Accepted, request_id: str
) -> tuple[Target, bool]:
    """Return the target as it stands now, and whether somebody approved the call."""
    verdict = _verdict(session, target, accepted)
    if verdict.action == "allow":
        return target, False
    await _ask(session, target, accepted, request_id, verdict)
    current = await session.decide_again(target)
    _verdict(session, current, accepted)
    return current, True


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
    try:
        async with asyncio.timeout(session.core.settings.approval_seconds):
            approved = await approver.approve(question)
    except TimeoutError:
        message = f"nobody decided on {target.tool} in time: {verdict.rule}"
        raise refuse("mcp_approval_required", message) from None
    if not approved:
        raise refuse("mcp_approval_denied", f"approval of {target.tool} was denied")
