"""The holes that were found in the system behind the seeds; each one is closed here.

They were found by reading: facts on the seeds' own systems, sections 1.2 to 1.5.
"""

from __future__ import annotations

import pytest

from bascule.errors import InvalidRecord, SessionRefused
from bascule.model.server import ServerRecord
from bascule.policy.compose import compose
from bascule.wire.records import decode
from bascule.wire.task_config import parse_session_params, parse_task_config
from tests.policy.build import access, allowed, platform, registry, server, session, task

WORLD = registry(server("fs"), server("gitlab"), server("other"))
SPELLINGS = ("mcp__other__read", "mcp.other.read", "other/read")


@pytest.mark.requirement("policy:decide:off-session")
@pytest.mark.parametrize("name", SPELLINGS)
def test_naming_another_registered_server_does_not_reach_it(name: str):
    """A model, or text injected into it, names a server that the session does not use."""
    table = access(compose(WORLD, task("fs", allowed_server_ids=["fs", "other"])), "read")
    assert table.decide("mcp__fs__read").allowed
    assert not table.decide(name).allowed
    assert table.resolve(name) is None
    narrowed = access(compose(WORLD, task("fs", "other"), session("fs")), "read")
    assert not narrowed.decide(name).allowed
    assert narrowed.decide(name).reason == "not_requested"


@pytest.mark.requirement("policy:decide:disabled-session")
@pytest.mark.parametrize("name", SPELLINGS)
def test_nothing_can_be_called_while_mcp_is_off(name: str):
    for effective in (
        compose(WORLD, task("other"), session(enabled=False)),
        compose(WORLD, task("other", enabled=False)),
        compose(WORLD),
    ):
        table = access(effective, "read")
        assert table.tools == ()
        assert not table.decide(name).allowed
        assert table.resolve(name) is None


@pytest.mark.requirement("policy:task-lists-without-default")
def test_a_tasks_tool_lists_hold_although_it_has_no_default_server():
    bounded = task(
        allowed_server_ids=["fs"], tool_allowlist=["read", "delete"], tool_denylist=["delete"]
    )
    effective = compose(WORLD, bounded, session("fs", enabled=True))
    assert allowed(effective, "fs", "read", "write", "delete") == ["read"]


@pytest.mark.requirement("record:budgets:defaults")
def test_a_budget_that_is_left_out_beside_others_has_its_default_and_not_the_least():
    plain = {
        "server_id": "fs",
        "transport": "stdio",
        "stdio": {"command": "x"},
        "budgets": {"max_concurrency": 2},
    }
    record, _ = decode(ServerRecord, plain)
    assert record.budgets.tool_timeout_ms == 60_000
    assert record.budgets.list_timeout_ms == 12_000
    with pytest.raises(InvalidRecord, match="tool_timeout_ms: must be at least 1"):
        decode(ServerRecord, plain | {"budgets": {"tool_timeout_ms": 0}})


@pytest.mark.requirement("task:default-outside-allowed")
def test_defaults_outside_the_ceiling_are_not_lost_in_silence():
    effective = compose(WORLD, task("fs", "gitlab", allowed_server_ids=["fs"]))
    assert any("gitlab" in warning for warning in effective.warnings)
    assert any(line.server == "gitlab" and not line.allowed for line in effective.decisions)


@pytest.mark.requirement("task:allowed-defaults-to-default", "policy:session-refused")
def test_a_ceiling_that_is_present_and_empty_allows_no_server():
    bounded = task("fs", allowed_server_ids=[])
    assert compose(WORLD, bounded).servers == ()
    with pytest.raises(SessionRefused):
        compose(WORLD, bounded, session("fs"))


@pytest.mark.requirement("policy:empty-allowlist")
def test_an_empty_allowlist_is_not_the_absence_of_a_limit():
    for bounded, asked in (
        (task("fs", tool_allowlist=[]), session()),
        (task("fs"), session(tool_allowlist=[])),
    ):
        assert allowed(compose(WORLD, bounded, asked), "fs", "read") == []


@pytest.mark.requirement("policy:session:bad-type")
@pytest.mark.parametrize("members", [["fs", 7], ["fs", None], ["fs", ["x"]], ["fs", ""]])
def test_members_that_are_no_names_are_refused_and_not_dropped(members: list[object]):
    with pytest.raises(InvalidRecord, match=r"mcp\.server_ids\[1\]"):
        parse_session_params({"mcp.server_ids": members})
    with pytest.raises(InvalidRecord, match=r"mcp\.tool_denylist\[1\]"):
        parse_session_params({"mcp.tool_denylist": members})


@pytest.mark.requirement("task:config:malformed")
def test_a_word_that_is_neither_yes_nor_no_is_refused():
    with pytest.raises(InvalidRecord, match=r"mcp\.enabled"):
        parse_task_config({"mcp.enabled": "enabled"})


def test_a_session_cannot_write_the_lists_of_its_task():
    for key in ("mcp.task_tool_allowlist", "mcp.task_tool_denylist"):
        with pytest.raises(InvalidRecord, match=key.replace(".", r"\.")):
            parse_session_params({key: []})


@pytest.mark.requirement("policy:no-servers", "policy:platform:denylist")
def test_the_absence_of_a_task_is_no_licence():
    """Without a task a session is still bounded by the platform, and uses what it names."""
    world = registry(
        server("fs", allowed_tools=["read", "delete"]), platform=platform(tool_denylist=["delete"])
    )
    assert compose(world, None, session(enabled=True)).servers == ()
    effective = compose(world, None, session("fs"))
    assert allowed(effective, "fs", "read", "write", "delete") == ["read"]


@pytest.mark.requirement("policy:empty-warning")
def test_an_empty_result_is_said_and_logged():
    effective = compose(WORLD, task("gone"))
    assert effective.warnings
    assert [line.reason for line in effective.decisions] == ["unknown_server"]


@pytest.mark.requirement("names:route-back")
def test_a_server_id_that_ends_in_an_underscore_is_not_split_wrongly():
    world = registry(server("fs"), server("fs_"))
    table = access(compose(world, None, session("fs", "fs_")), "t", "_t")
    targets = {
        name: (grant.tool.server_id, grant.tool.name) for name, grant in table.grants.items()
    }
    assert sorted(targets.values()) == [("fs", "_t"), ("fs", "t"), ("fs_", "_t"), ("fs_", "t")]
    assert targets["mcp__fs__t"] == ("fs", "t")
