"""Approval verdicts: may this call go, must a person agree, or is it denied?

The platform and the server's record are asked separately and the stricter answer stands, so that a
record can never loosen the platform.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from bascule.model.condition import Condition, ConditionError
from bascule.model.json import JsonObject, JsonValue
from bascule.model.pattern import Pattern, PatternSet
from bascule.model.platform import PlatformRecord
from bascule.model.server import (
    ApprovalMode,
    ApprovalPolicy,
    ApprovalRule,
    RuleEffect,
    ServerRecord,
)

Action = Literal["allow", "require", "deny"]
_STRICTNESS: Mapping[Action, int] = {"allow": 0, "require": 1, "deny": 2}
_BY_STRICTNESS: tuple[ApprovalMode, ...] = ("always", "policy", "never")


class Verdict(Struct, frozen=True):
    """What approval says to one call, and the rule that said it."""

    action: Action
    rule: str

    def __str__(self) -> str:
        words = {"allow": "no approval needed", "require": "approval required", "deny": "denied"}
        return f"{words[self.action]} ({self.rule})"


class PlannedRule(Struct, frozen=True):
    """A rule that covers the tool, its condition parsed."""

    name: str
    effect: RuleEffect
    condition: Condition | None


class PlannedPolicy(Struct, frozen=True):
    """One source's mode and rules for one tool."""

    name: str
    mode: ApprovalMode
    rules: tuple[PlannedRule, ...]


class ApprovalPlan(Struct, frozen=True):
    """Everything approval needs to know about one tool."""

    policies: tuple[PlannedPolicy, ...]
    #: The verdict when it does not depend on the call, so that most calls need no evaluation.
    fixed: Verdict | None

    @property
    def mode(self) -> ApprovalMode:
        """Return what it comes to: no call, every call, or what the rules say to each.

        Rules that deny every call are rules.
        """
        if self.fixed is None or self.fixed.action == "deny":
            return "policy"
        return "never" if self.fixed.action == "allow" else "always"

    def verdict(self, facts: JsonObject) -> Verdict:
        """Return the strictest verdict for a call. ``facts`` are the condition's variables."""
        if self.fixed is not None:
            return self.fixed
        return _strictest(_evaluate(policy, facts) for policy in self.policies)


def plan_approval(platform: PlatformRecord, record: ServerRecord, tool: str) -> ApprovalPlan:
    """Compile the approval plan of one tool."""
    server, own = record.server_id, record.approval_policy
    policies = (
        _planned("platform", platform.default_approval, platform.rules, server, tool),
        _planned("approval_policy", _mode_for(own, server, tool), own.rules, server, tool),
    )
    depends = any(_depends(rule) for policy in policies for rule in policy.rules)
    fixed = None if depends else _strictest(_evaluate(policy, {}) for policy in policies)
    return ApprovalPlan(policies, fixed)


def _depends(rule: PlannedRule) -> bool:
    """Say whether a rule's verdict is known only with the call: its arguments or its caller."""
    return rule.condition is not None or rule.effect == "allow"


def call_facts(
    record: ServerRecord,
    tool: str,
    arguments: JsonObject,
    caller: str | None,
    task: str | None,
    user: JsonObject | None = None,
) -> dict[str, JsonValue]:
    """Return what a condition may look at; a caller, task or user not known is left out."""
    facts: dict[str, JsonValue] = {"args": arguments, "server": record.server_id, "tool": tool}
    if caller is not None:
        facts["caller"] = caller
    if task is not None:
        facts["task"] = task
    if user is not None:
        facts["user"] = user
    return facts


def user_facts(person: str | None, groups: Sequence[str] | None) -> dict[str, JsonValue] | None:
    """Return what a condition may ask of a person; without a record nobody knows the groups."""
    if person is None:
        return None
    return {"id": person} if groups is None else {"id": person, "groups": list(groups)}


def _mode_for(policy: ApprovalPolicy, server: str, tool: str) -> ApprovalMode:
    """Return the tool's mode: its exact name first, then the strictest pattern, then default."""
    if tool in policy.per_tool:
        return policy.per_tool[tool]
    modes = [
        mode for text, mode in policy.per_tool.items() if Pattern.parse(text).matches(server, tool)
    ]
    for mode in _BY_STRICTNESS:
        if mode in modes:
            return mode
    return policy.default


def _planned(
    name: str, mode: ApprovalMode, rules: tuple[ApprovalRule, ...], server: str, tool: str
) -> PlannedPolicy:
    planned = tuple(
        PlannedRule(
            f"{name}.rules[{index}]",
            rule.effect,
            None if rule.when is None else Condition.parse(rule.when),
        )
        for index, rule in enumerate(rules)
        if PatternSet(rule.tools).first(server, tool) is not None
    )
    return PlannedPolicy(name, mode, planned)


def _evaluate(policy: PlannedPolicy, facts: JsonObject) -> Verdict:
    """The first rule that holds decides; one that cannot be evaluated requires approval."""
    for rule in policy.rules:
        try:
            holds = rule.condition is None or rule.condition.holds(facts)
        except ConditionError as error:
            return Verdict("require", f"{rule.name} cannot be evaluated: {error}")
        if holds:
            return _rule_verdict(rule, policy, facts)
    action: Action = "allow" if policy.mode == "never" else "require"
    return Verdict(action, f"{policy.name} is {policy.mode!r}")


def _rule_verdict(rule: PlannedRule, policy: PlannedPolicy, facts: JsonObject) -> Verdict:
    """A rule that allows does so only for a caller who is known, and never against 'always'."""
    if rule.effect == "deny":
        return Verdict("deny", rule.name)
    if rule.effect == "require_approval" or policy.mode == "always":
        return Verdict("require", rule.name)
    if policy.mode == "policy" and "caller" not in facts:
        return Verdict("require", f"{rule.name} allows known callers only")
    return Verdict("allow", rule.name)


def _strictest(verdicts: Iterable[Verdict]) -> Verdict:
    return max(verdicts, key=lambda verdict: _STRICTNESS[verdict.action])
