"""What the control plane itself says of a call that a node asks about, by the records of now.

A node decides by the records that it was sent. Those of the control plane may be newer, so they
decide too: when a question is asked, and again when the approval is claimed.
"""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from bascule.errors import BasculeError
from bascule.model.approval import ExactCall
from bascule.model.json import JsonObject
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.policy.approval import call_facts, plan_approval, user_facts
from bascule.policy.approval_digest import policy_digest
from bascule.policy.compose import compose


class CallDenied(BasculeError):
    """The records of now do not let the call leave, whoever approves it."""

    code = "mcp_policy_denied"


def judged(
    snapshot: Snapshot, call: ExactCall, arguments: JsonObject, *, acting: bool
) -> ExactCall:
    """Return a call bound also to what decides on it here; raise CallDenied or SessionRefused.

    ``acting`` says that the token of the call speaks for people. What a node narrows besides (its
    environment, the session) is the node's own to judge.
    """
    task = snapshot.tasks.get(call.task_id or "")
    if task is None:
        raise CallDenied(f"there is no task {call.task_id!r} any more")
    wanted = SessionRequest(server_ids=(call.server_id,))
    effective = compose(snapshot, task, wanted, person=call.person, acting=acting)
    decision = effective.decide(call.server_id, call.tool_name)
    record = snapshot.servers.get(call.server_id)
    if record is None or not decision.allowed:
        raise CallDenied(f"{decision.layer} denies it now: {decision.reason} {decision.rule}")
    plan = plan_approval(snapshot.platform, record, call.tool_name)
    user = user_facts(call.person, effective.user.groups)
    verdict = plan.verdict(
        call_facts(record, call.tool_name, arguments, call.caller, call.task_id, user)
    )
    if verdict.action == "deny":
        raise CallDenied(f"a rule denies it now: {verdict.rule}")
    both = f"{call.policy_digest} {policy_digest(record, plan, verdict.rule)}"
    return replace(call, policy_digest=hashlib.sha256(both.encode()).hexdigest())
