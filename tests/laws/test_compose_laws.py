"""The laws of policy: narrowing never widens, a deny vetoes, and a second reading agrees."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bascule.errors import SessionRefused
from bascule.policy.access import compile_access
from bascule.policy.compose import Effective
from tests.laws import oracle
from tests.laws.oracle import Case
from tests.laws.strategies import (
    ANY_SERVER,
    PATTERNS,
    SERVERS,
    TAGS,
    TOOLS,
    Dice,
    cases,
    composed,
    lists,
    lively_cases,
    profiles,
    selections,
    tools_of,
    universe,
)
from tests.policy.build import tool
from tests.scale import SOAK, scaled

RANDOM_CASES = 200_000 if SOAK else 2_000


def attempted(case: Case) -> Effective | SessionRefused:
    try:
        return composed(case)
    except SessionRefused as refused:
        return refused


def check_against_the_oracle(case: Case) -> str:
    """Compare `compose` with the second reading in all that a caller can see."""
    effective = attempted(case)
    if isinstance(effective, SessionRefused):
        assert effective.reason == oracle.refusal(case), case
        return "refused"
    assert oracle.refusal(case) is None, case
    assert sorted(effective.servers) == sorted(oracle.effective_servers(case)), case
    assert len(set(effective.servers)) == len(effective.servers)
    for line in effective.decisions:
        found = oracle.server_objections(case, line.server)
        assert line.allowed == (not found), (line, case)
        assert line.allowed or (line.layer, line.reason) in found, (line, case)
    count = 0
    for server in ANY_SERVER:
        gate = effective.gate(server)
        for name in TOOLS:
            verdict, found = gate(name), oracle.tool_objections(case, server, name)
            assert verdict.allowed == (not found), (verdict, case)
            assert verdict.allowed or (verdict.layer, verdict.reason) in found, (verdict, case)
            count += verdict.allowed
    return "some" if count else "none"


@pytest.mark.requirement(
    "policy:intersection", "policy:tools-intersect", "policy:requested:default", "policy:reasons"
)
@pytest.mark.timeout(3600 if SOAK else 60)
def test_compose_agrees_with_a_naive_second_reading_on_random_cases():
    rng = random.Random(20261102 if not SOAK else None)
    seen = {"refused": 0, "some": 0, "none": 0}
    for _ in range(RANDOM_CASES):
        seen[check_against_the_oracle(Dice(rng).case())] += 1
    assert min(seen.values()) > RANDOM_CASES // 20, f"the cases are too much alike: {seen}"


@given(cases())
def test_compose_agrees_with_a_naive_second_reading_on_shrinkable_cases(case: Case):
    check_against_the_oracle(case)


@pytest.mark.requirement("policy:pure")
@given(cases())
def test_the_same_input_gives_the_same_answer_whatever_the_order_of_the_registry(case: Case):
    turned = replace(case, servers=dict(reversed(list(case.servers.items()))))
    first, second = attempted(case), attempted(turned)
    if isinstance(first, SessionRefused) or isinstance(second, SessionRefused):
        assert str(first) == str(second)
        return
    assert (first.servers, first.decisions, first.warnings) == (
        second.servers,
        second.decisions,
        second.warnings,
    )
    assert tools_of(case) == tools_of(turned)


def with_session(case: Case, **fields: Any) -> Case:
    return replace(case, session=case.session | fields)


def with_task(case: Case, **fields: Any) -> Case:
    return replace(case, task=(case.task or {}) | fields)


def more(plain: dict[str, Any], key: str, patterns: list[str]) -> dict[str, Any]:
    """Return the entry for a denylist with patterns added."""
    return {key: [*plain.get(key, []), *patterns]}


def fewer(plain: dict[str, Any], key: str, patterns: list[str]) -> dict[str, Any]:
    """Return the entry for an allowlist that is set where absent, and shortened where not."""
    given = plain.get(key)
    return {key: patterns if given is None else [p for p in given if p in patterns]}


def shorter(plain: dict[str, Any], key: str, chosen: list[str]) -> dict[str, Any]:
    """Return a list of servers without those not chosen; an absent one is no list to shorten."""
    given = plain.get(key)
    return {} if given is None else {key: [server for server in given if server in chosen]}


Constraint = Callable[[Case, list[str], list[str]], Case]


def on_a_server(case: Case, server: str, **fields: Any) -> Case:
    return replace(case, servers=case.servers | {server: case.servers[server] | fields})


def a_disabled_server(case: Case, patterns: list[str], chosen: list[str]) -> Case:
    del patterns
    for server in set(chosen) & set(case.servers):
        case = on_a_server(case, server, enabled=False)
    return case


def a_removed_server(case: Case, patterns: list[str], chosen: list[str]) -> Case:
    del patterns
    return replace(case, servers={s: r for s, r in case.servers.items() if s not in chosen})


def fewer_allowed_tools(case: Case, patterns: list[str], chosen: list[str]) -> Case:
    for server in set(chosen) & set(case.servers):
        case = on_a_server(case, server, **fewer(case.servers[server], "allowed_tools", patterns))
    return case


def narrower_servers(case: Case, patterns: list[str], chosen: list[str]) -> Case:
    """A session may choose among what it would have had; more than that is another choice."""
    del patterns
    had = oracle.requested(case)
    return with_session(case, server_ids=[server for server in had if server in chosen])


def narrower_defaults(case: Case, patterns: list[str], chosen: list[str]) -> Case:
    del patterns
    return with_task(case, **shorter(case.task or {}, "default_server_ids", chosen))


def narrower_ceiling(case: Case, patterns: list[str], chosen: list[str]) -> Case:
    del patterns
    return with_task(case, **shorter(case.task or {}, "allowed_server_ids", chosen))


CONSTRAINTS: dict[str, Constraint] = {
    "platform denylist": lambda case, patterns, _: replace(
        case, platform=more(case.platform, "tool_denylist", patterns)
    ),
    "task allowlist": lambda case, patterns, _: with_task(
        case, **fewer(case.task or {}, "tool_allowlist", patterns)
    ),
    "task denylist": lambda case, patterns, _: with_task(
        case, **more(case.task or {}, "tool_denylist", patterns)
    ),
    "task read-only": lambda case, *_: with_task(case, read_only=True),
    "task off": lambda case, *_: with_task(case, enabled=False),
    "task defaults": narrower_defaults,
    "task ceiling": narrower_ceiling,
    "session allowlist": lambda case, patterns, _: with_session(
        case, **fewer(case.session, "tool_allowlist", patterns)
    ),
    "session denylist": lambda case, patterns, _: with_session(
        case, **more(case.session, "tool_denylist", patterns)
    ),
    "session read-only": lambda case, *_: with_session(case, read_only=True),
    "session off": lambda case, *_: with_session(case, enabled=False),
    "session servers": narrower_servers,
    "server disabled": a_disabled_server,
    "server removed": a_removed_server,
    "server allowed_tools": fewer_allowed_tools,
}


@pytest.mark.requirement("policy:constraint-law", "policy:narrowing-law")
@pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS.keys())
@settings(max_examples=scaled(1000))
@given(case=cases() | lively_cases(), patterns=lists(PATTERNS, 3), chosen=lists(SERVERS, 3))
def test_adding_a_constraint_never_adds_a_tool(
    constraint: Constraint, case: Case, patterns: list[str], chosen: list[str]
):
    assume(case.task is not None and oracle.refusal(case) is None)
    assert tools_of(constraint(case, patterns, chosen)) <= tools_of(case)


@pytest.mark.requirement("task:profile:never-add", "policy:constraint-law")
@given(lively_cases(), profiles(), st.sampled_from([None, "dev", "prod"]))
def test_a_profile_beside_explicit_keys_never_adds_a_tool(
    case: Case, extra: dict[str, Any], environment: str | None
):
    alone = {k: v for k, v in (case.task or {}).items() if not k.startswith("profile")}
    before = replace(case, task=alone, environment=environment)
    after = replace(before, profiles={"p": extra}, task=alone | {"profile": "p"})
    assert tools_of(after) <= tools_of(before)


@pytest.mark.requirement("task:profile:never-add", "task:profile:overrides")
@given(lively_cases(), selections())
def test_overrides_never_add_a_tool(case: Case, overrides: dict[str, Any]):
    task = {k: v for k, v in (case.task or {}).items() if k != "profile_overrides"}
    before = replace(case, task=task | {"profile": "p"})
    after = replace(case, task=task | {"profile": "p", "profile_overrides": overrides})
    assert tools_of(after) <= tools_of(before)


@pytest.mark.requirement("task:tags:narrow")
@given(lively_cases(), lists(TAGS, 2))
def test_tags_beside_ids_never_add_a_tool(case: Case, tags: list[str]):
    untagged = {k: v for k, v in (case.task or {}).items() if k != "server_tags"}
    before = replace(case, task=untagged)
    assert tools_of(with_task(before, server_tags=tags)) <= tools_of(before)


@pytest.mark.requirement("policy:narrowing-law", "policy:record-always-constrains")
@given(cases())
def test_no_layer_allows_what_the_one_above_it_does_not(case: Case):
    platform_alone = replace(case, task=None, session={"server_ids": list(ANY_SERVER)})
    assert tools_of(case) <= tools_of(platform_alone)
    if case.task is not None:
        ceiling = sorted(oracle.task_layer(case).allowed or [])
        task_alone = replace(case, session={"server_ids": ceiling})
        assert tools_of(case) <= tools_of(task_alone) <= tools_of(platform_alone)


LAYERS = ("platform", "task", "profile", "environment", "overrides", "session")


def denied_at(case: Case, layer: str, pattern: str) -> Case:
    veto = {"tool_denylist": [pattern]}
    task = case.task or {}
    profile = {k: v for k, v in case.profiles.get("p", {}).items() if k != "environments"}
    match layer:
        case "platform":
            return replace(case, platform=veto)
        case "task":
            return replace(case, task=task | veto)
        case "profile":
            return replace(case, profiles={"p": profile | veto})
        case "environment":
            return replace(case, profiles={"p": profile | {"environments": {"dev": veto}}})
        case "overrides":
            return replace(case, task=task | {"profile_overrides": veto})
        case _:
            return replace(case, session=case.session | veto)


@pytest.mark.requirement("policy:deny-is-veto")
@pytest.mark.parametrize("layer", LAYERS)
@settings(max_examples=scaled(1000))
@given(lively_cases(), st.sampled_from(TOOLS), st.booleans())
def test_a_deny_at_any_layer_is_a_veto(layer: str, case: Case, name: str, qualified: bool):
    task = (case.task or {}) | {"profile": "p", "tool_allowlist": [name, "*"]}
    case = replace(case, task=task, profiles={"p": {}}, environment="dev")
    servers = {server for server, allowed in tools_of(case) if allowed == name}
    pattern = f"{min(servers)}/{name}" if qualified and servers else name
    after = tools_of(denied_at(case, layer, pattern))
    vetoed = {min(servers)} if qualified and servers else servers
    assert not {(server, name) for server in vetoed} & after
    assert {pair for pair in tools_of(case) if pair[1] != name} <= after


@pytest.mark.requirement("policy:decide:unlisted", "names:unknown")
@given(cases() | lively_cases(), lists(TOOLS, 3))
def test_no_call_is_allowed_on_a_tool_that_is_not_listed(case: Case, offered: list[str]):
    effective = attempted(case)
    if isinstance(effective, SessionRefused):
        return
    records = effective.registry.servers
    access = compile_access(
        effective,
        {s: [tool(record, name) for name in set(offered)] for s, record in records.items()},
    )
    there = {(listed.server_id, listed.name) for listed in access.tools}
    for server, name in universe():
        for spelling in (f"mcp__{server}__{name}", f"mcp.{server}.{name}", f"{server}/{name}"):
            expected = (server, name) in there
            assert access.decide(spelling).allowed == expected
            assert (access.resolve(spelling) is not None) == expected
    assert there <= {(s, t) for s, t in tools_of(case) if t in offered}


def catalogue_of(case: Case, offered: list[str]) -> dict[str, list[str]]:
    return {server: sorted(set(offered)) for server in case.servers}


@pytest.mark.requirement("task:max-tools")
@pytest.mark.timeout(3600 if SOAK else 60)
def test_what_is_offered_is_what_a_naive_second_reading_offers():
    rng = random.Random(20261115 if not SOAK else None)
    cut = 0
    for _ in range(RANDOM_CASES):
        case = Dice(rng).case()
        effective = attempted(case)
        if isinstance(effective, SessionRefused):
            continue
        names = catalogue_of(case, list(TOOLS))
        records = effective.registry.servers
        access = compile_access(
            effective, {s: [tool(records[s], name) for name in names[s]] for s in names}
        )
        there = {(one.server_id, one.name) for one in access.tools}
        assert there == oracle.offered(case, names), case
        for line in access.decisions.values():
            expected = (line.server, line.tool) in there
            assert line.allowed == expected
            cut += line.reason == "over_max_tools"
            assert (access.resolve(f"{line.server}/{line.tool}") is not None) == expected
    assert cut > RANDOM_CASES // 100


@given(cases())
def test_an_unknown_profile_gives_nothing(case: Case):
    assume(case.task is not None)
    assert tools_of(with_task(case, profile="gone")) == set()
