"""The law of the effective set: it allows what a session lists, and no layer says no to that."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec import convert

from bascule.control.api.effective import Asked, effective_set
from bascule.errors import SessionRefused
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy
from bascule.model.tool import describe
from bascule.policy.access import Catalogue, compile_access
from bascule.policy.compose import compose
from bascule.policy.verdicts import facts_of
from bascule.wire.api.catalogue import EffectiveSet
from tests.laws.oracle import Case
from tests.laws.strategies import TOOLS, cases, lively_cases, registry_of


def known_of(registry: Snapshot) -> Catalogue:
    """Let every server but the last one be known by its tools."""
    return {
        server: [describe(record, {"name": t, "inputSchema": {"type": "object"}}) for t in TOOLS]
        for server, record in list(registry.servers.items())[:-1]
    }


def listed(asked: Asked, known: Catalogue) -> set[str]:
    """Return what a session lists; one that is refused lists nothing."""
    try:
        session = compose(
            asked.registry,
            asked.policy,
            asked.session,
            environment=asked.environment,
            person=asked.person,
            acting=True,
        )
    except SessionRefused:
        return set()
    return {tool.model_name for tool in compile_access(session, known).tools}


def question(case: Case, most: int) -> Asked:
    task = None if case.task is None else {"max_tools": most, **case.task}
    return Asked(
        registry=registry_of(case),
        task_id="t",
        policy=None if task is None else convert(task, TaskPolicy),
        draft=True,
        person=case.person,
        environment=case.environment,
        session=convert(case.session, SessionRequest),
    )


def refuse_disagreement(found: EffectiveSet) -> None:
    for server in found.servers:
        for shown in (server, *server.tools):
            noes = [one for one in shown.layers if one.allowed is False]
            assert shown.allowed == (not noes)
            assert all(one.reason is not None for one in noes)
            assert shown.allowed is (shown.edit is None) or any(one.edit is None for one in noes)


@pytest.mark.requirement("admin:effective:same")
@given(case=cases() | lively_cases())
def test_the_effective_set_allows_exactly_what_a_session_lists(case: Case):
    for most in (10_000, 3):
        asked = question(case, most)
        known = known_of(asked.registry)
        found = effective_set(asked, facts_of(asked.registry, known))
        tools = [tool for server in found.servers for tool in server.tools]
        assert {tool.name for tool in tools if tool.allowed} == listed(asked, known)
        assert {one.server_id for one in found.servers if one.listed} == set(known)
        refuse_disagreement(found)
