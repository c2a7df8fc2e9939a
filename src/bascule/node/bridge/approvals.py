"""Approval of one call: not needed, denied by rule, or asked for.

After every wait a call is decided again: what was allowed before it may not be any more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bascule.model.decision import deny
from bascule.node.bridge.refusal import denied, refuse
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
    current, _ = await decide_again(session, target, accepted, granted=True)
    return current, True


async def decide_again(
    session: Session, target: Target, accepted: Accepted, *, granted: bool
) -> tuple[Target, Accepted]:
    """Refuse a call that was allowed before a wait and is not any more.

    Its arguments are judged by the tool, the rules and the hygiene of now. An approval was given
    for these very arguments and this definition, and for nothing else.
    """
    current = await session.current(target)
    if current is target:
        return target, accepted
    if granted and current.grant.tool.digest != target.grant.tool.digest:
        raise refuse("mcp_approval_denied", "the tool's definition changed while waiting")
    again = current.accept(accepted.arguments, session.core.scanner)
    if granted and again.digest != accepted.digest:
        raise refuse("mcp_approval_denied", "the arguments would now be changed by the leak rules")
    verdict = _verdict(session, current, again)
    if verdict.action != "allow" and not granted:
        message = f"{target.tool} needs approval since the rules changed: {verdict.rule}"
        raise refuse("mcp_approval_required", message)
    return current, again


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
