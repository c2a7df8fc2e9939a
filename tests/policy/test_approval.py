"""Approval verdicts: go, ask a person, or no."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.policy.approval import Verdict, call_facts, plan_approval, user_facts
from bascule.policy.compose import compose
from tests.policy.build import access, platform, registry, server, session

ETC = "args.path.startsWith('/etc')"


def verdict(
    policy: dict[str, Any] | None = None,
    tool: str = "write_file",
    *,
    above: dict[str, Any] | None = None,
    args: dict[str, Any] | None = None,
    caller: str | None = "alice",
    user: dict[str, Any] | None = None,
) -> Verdict:
    record = server("fs", approval_policy=policy or {})
    plan = plan_approval(platform(**(above or {})), record, tool)
    return plan.verdict(call_facts(record, tool, args or {}, caller, None, user))


def action(*args: Any, **kwargs: Any) -> str:
    return verdict(*args, **kwargs).action


@pytest.mark.requirement("approval:never", "approval:policy:no-match")
@pytest.mark.parametrize(
    ("mode", "expected"), [("never", "allow"), ("always", "require"), ("policy", "require")]
)
def test_a_mode_alone_decides(mode: str, expected: str):
    assert action({"default": mode}) == expected
    assert action(above={"default_approval": mode}) == expected


@pytest.mark.requirement("approval:per-tool")
def test_a_word_on_a_tool_stands_above_the_word_on_its_server():
    assert action({"default": "never", "per_tool": {"write_*": "always"}}) == "require"
    assert action({"default": "always", "per_tool": {"write_*": "never"}}) == "allow"
    assert action({"default": "always", "per_tool": {"read_*": "never"}}) == "require"


@pytest.mark.requirement("approval:per-tool:exact")
def test_the_exact_name_counts_before_any_pattern():
    policy = {"per_tool": {"write_*": "always", "write_file": "never", "*": "always"}}
    assert action(policy) == "allow"
    assert action(policy, "write_other") == "require"


@pytest.mark.requirement("approval:per-tool:strictest")
def test_of_several_patterns_the_strictest_counts():
    rules = [{"tools": ["*"], "effect": "allow"}]
    loose_first = {"per_tool": {"write_*": "never", "*_file": "always", "w*": "policy"}}
    for policy in (loose_first, {"per_tool": dict(reversed(loose_first["per_tool"].items()))}):
        assert action(policy) == "require"
        assert action(policy | {"rules": rules}) == "require"
    middle = {"default": "never", "per_tool": {"write_*": "never", "*_file": "policy"}}
    assert action(middle) == "require"
    assert action(middle | {"rules": rules}) == "allow"


def test_a_word_on_a_tool_may_name_its_server():
    assert action({"per_tool": {"fs/write_*": "always"}}) == "require"
    assert action({"per_tool": {"other/write_*": "always"}}) == "allow"


@pytest.mark.requirement("approval:policy:first-match")
def test_the_first_rule_that_holds_decides():
    rules = [
        {"tools": ["read_*"], "effect": "deny"},
        {"tools": ["write_*"], "when": ETC, "effect": "deny"},
        {"tools": ["write_*"], "effect": "allow"},
        {"tools": ["*"], "effect": "deny"},
    ]
    policy = {"default": "policy", "rules": rules}
    assert action(policy, args={"path": "/etc/passwd"}) == "deny"
    assert action(policy, args={"path": "/srv"}) == "allow"
    assert action(policy, "other", args={"path": "/srv"}) == "deny"
    assert verdict(policy, args={"path": "/etc"}).rule == "approval_policy.rules[1]"


@pytest.mark.requirement("approval:policy:no-match")
def test_under_policy_a_call_that_no_rule_covers_needs_approval():
    policy = {"default": "policy", "rules": [{"tools": ["x"], "effect": "allow"}]}
    assert action(policy) == "require"
    policy = {"default": "policy", "rules": [{"when": ETC, "effect": "allow"}]}
    assert action(policy, args={"path": "/srv"}) == "require"


@pytest.mark.requirement("approval:policy:error")
@pytest.mark.parametrize("args", [{}, {"path": 7}, {"path": None}, {"path": ["/etc"]}])
@pytest.mark.parametrize("mode", ["policy", "never", "always"])
def test_a_condition_that_cannot_be_answered_needs_approval(args: dict[str, Any], mode: str):
    policy = {"default": mode, "rules": [{"when": ETC, "effect": "allow"}]}
    found = verdict(policy, args=args)
    assert found.action == "require"
    assert "rules[0]" in found.rule


@pytest.mark.requirement("approval:policy:missing-caller")
def test_a_caller_that_is_not_known_needs_approval():
    policy = {"default": "policy", "rules": [{"when": "caller == 'alice'", "effect": "allow"}]}
    assert action(policy, caller="alice") == "allow"
    assert action(policy, caller="bob") == "require"
    assert action(policy, caller=None) == "require"
    never = {"rules": [{"when": "caller != 'alice'", "effect": "deny"}]}
    assert action(never, caller="alice") == "allow"
    assert action(never, caller=None) == "require"


@pytest.mark.requirement("approval:policy:deny")
def test_a_rule_may_deny_whatever_the_mode():
    for mode in ("never", "policy", "always"):
        assert (
            action({"default": mode, "rules": [{"tools": ["write_*"], "effect": "deny"}]}) == "deny"
        )


@pytest.mark.requirement("approval:policy:condition-on-arguments")
def test_a_rule_looks_at_the_arguments():
    policy = {"rules": [{"tools": ["write_*"], "when": ETC, "effect": "require_approval"}]}
    assert action(policy, args={"path": "/etc/hosts"}) == "require"
    assert action(policy, args={"path": "/srv/a"}) == "allow"
    assert action(policy, "read_file", args={"path": "/etc/hosts"}) == "allow"


@pytest.mark.requirement("policy:decide:conditions-only-tighten")
def test_an_allowing_rule_loosens_neither_always_nor_the_platform_nor_a_denied_tool():
    allow = {"rules": [{"when": "true", "effect": "allow"}]}
    assert action(allow | {"default": "always"}) == "require"
    assert action(allow, above={"default_approval": "always"}) == "require"
    assert action(allow, above={"rules": [{"effect": "deny"}]}) == "deny"
    record = server("fs", allowed_tools=["read_*"], approval_policy=allow)
    table = access(compose(registry(record), None, session("fs")), "write_file")
    assert not table.decide("mcp__fs__write_file").allowed


@pytest.mark.requirement("policy:platform:approval")
def test_the_platforms_default_applies_where_a_record_says_nothing():
    assert action(above={"default_approval": "always"}) == "require"
    assert action({"default": "never"}, above={"default_approval": "always"}) == "require"
    assert action({"default": "always"}, above={"default_approval": "never"}) == "require"


@pytest.mark.requirement("policy:platform:rules")
def test_the_platforms_rules_apply_to_every_server():
    above = platform(rules=[{"tools": ["*"], "when": ETC, "effect": "deny"}])
    world = registry(server("fs"), server("gitlab"), platform=above)
    grants = access(compose(world, None, session("fs", "gitlab")), "write").grants
    for grant in grants.values():
        facts = call_facts(grant.record, "write", {"path": "/etc/x"}, None, None)
        assert grant.approval.verdict(facts).action == "deny"
        facts = call_facts(grant.record, "write", {"path": "/srv"}, None, None)
        assert grant.approval.verdict(facts).action == "allow"


@pytest.mark.requirement("approval:write-tools")
def test_a_platform_rule_can_ask_for_approval_of_write_tools_alone():
    above = {
        "rules": [
            {"tools": ["read_*", "search_*"], "effect": "allow"},
            {"tools": ["*"], "effect": "require_approval"},
        ]
    }
    assert action(above=above, tool="read_file") == "allow"
    assert action(above=above, tool="write_file") == "require"


@pytest.mark.requirement("policy:platform:approval", "approval:never")
def test_a_grant_carries_its_verdict_when_it_does_not_depend_on_the_call():
    world = registry(server("fs", approval_policy={"per_tool": {"w": "always"}}))
    grants = access(compose(world, None, session("fs")), "r", "w").grants
    fixed = {name: grant.approval.fixed for name, grant in grants.items()}
    assert fixed["mcp__fs__r"] is not None
    assert fixed["mcp__fs__r"].action == "allow"
    assert fixed["mcp__fs__w"] is not None
    assert fixed["mcp__fs__w"].action == "require"


def test_a_verdict_reads_as_a_sentence():
    assert str(verdict({"default": "always"})).startswith("approval required (")
    assert str(verdict({"rules": [{"effect": "deny"}]})) == "denied (approval_policy.rules[0])"


STRICTNESS = {"allow": 0, "require": 1, "deny": 2}
MODES = st.sampled_from(["never", "policy", "always"])
RULES = st.lists(
    st.fixed_dictionaries(
        {"effect": st.sampled_from(["require_approval", "deny", "allow"])},
        optional={
            "tools": st.lists(st.sampled_from(["*", "write_*", "read_*"]), min_size=1, max_size=2),
            "when": st.sampled_from(["true", "false", "args.missing", "args.n > 2"]),
        },
    ),
    max_size=3,
)


def expected(mode: str, rules: list[dict[str, Any]], n: int) -> str:
    """A second reading of one policy for ``write_file``."""
    for rule in rules:
        tools = rule.get("tools", ["*"])
        if not {"*", "write_*"} & set(tools):
            continue
        holds = {"true": True, "false": False, "args.n > 2": n > 2, None: True}
        when = rule.get("when")
        if when not in holds:
            return "require"
        if holds[when]:
            allows = rule["effect"] == "allow" and mode != "always"
            return "deny" if rule["effect"] == "deny" else "allow" if allows else "require"
    return "allow" if mode == "never" else "require"


@pytest.mark.requirement("approval:policy:first-match", "policy:platform:rules")
@given(MODES, RULES, MODES, RULES, st.integers(0, 5))
def test_the_stricter_of_platform_and_record_stands(
    above: str, above_rules: list[dict[str, Any]], own: str, own_rules: list[dict[str, Any]], n: int
):
    found = action(
        {"default": own, "rules": own_rules},
        above={"default_approval": above, "rules": above_rules},
        args={"n": n},
    )
    both = expected(above, above_rules, n), expected(own, own_rules, n)
    assert found == max(both, key=STRICTNESS.__getitem__)


@pytest.mark.requirement("people:rules")
def test_a_rule_may_ask_for_a_persons_groups_and_who_is_not_known_needs_approval():
    rule = {"effect": "allow", "when": "'writers' in user.groups"}
    policy = {"default": "policy", "rules": [rule]}
    assert action(policy, user=user_facts("alice", ["writers"])) == "allow"
    assert action(policy, user=user_facts("bob", [])) == "require"
    assert action(policy, user=user_facts(None, None)) == "require"
    assert action(policy, user=user_facts("nobody on record", None)) == "require"


@pytest.mark.requirement("people:rules")
def test_a_rule_against_a_group_does_not_let_pass_who_has_no_record():
    against = {"rules": [{"effect": "deny", "when": "'interns' in user.groups"}]}
    assert action(against, user=user_facts("alice", ["writers"])) == "allow"
    assert action(against, user=user_facts("ivan", ["interns"])) == "deny"
    assert action(against, user=user_facts("ivan", None)) == "require"
    assert action(against) == "require"
    by_id = {"default": "policy", "rules": [{"effect": "allow", "when": "user.id == 'alice'"}]}
    assert action(by_id, user=user_facts("alice", None)) == "allow"
