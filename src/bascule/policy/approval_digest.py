"""What decides on a call besides the call itself, as a digest that an approval is bound to."""

from __future__ import annotations

import hashlib

import msgspec

from bascule.model.server import ServerRecord
from bascule.policy.approval import ApprovalPlan


def policy_digest(record: ServerRecord, plan: ApprovalPlan, rule: str) -> str:
    """Return a digest of what decides besides the call itself: the server's record, the rules.

    ``rule`` is the one that decided. Rules are known by what they say, and by their place among
    those that cover the tool.
    """
    plain = msgspec.json.encode(record, order="deterministic")
    return hashlib.sha256(plain + msgspec.json.encode(_rules(plan, rule))).hexdigest()


def _rules(plan: ApprovalPlan, rule: str) -> list[object]:
    told: list[object] = []
    for policy in plan.policies:
        told.append((policy.name, policy.mode))
        for place, one in enumerate(policy.rules):
            told.append((one.effect, str(one.condition)))
            if rule.startswith(one.name):
                rule = f"{policy.name} {place}{rule.removeprefix(one.name)}"
    return [*told, rule]
