"""Platform, task and session compose to what a session may use, each only narrowing."""

from __future__ import annotations

import pytest

from bascule.errors import SessionRefused
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.policy.compose import compose
from bascule.wire.task_config import parse_session_params, parse_task_config
from tests.policy.build import allowed, platform, reasons, registry, server, session, task

TOOLS = ("read_file", "write_file", "delete_file", "search")
WORLD = registry(
    server("gitlab", tags=["scm"]),
    server("fs", tags=["files"], allowed_tools=["read_*", "write_*", "delete_*"]),
    server("duckduckgo-search", tags=["search"]),
    server("jira", tags=["scm"]),
)
SEED_TASK, _ = parse_task_config(
    {
        "mcp.enabled": "true",
        "mcp.default_server_ids": '["gitlab","fs"]',
        "mcp.allowed_server_ids": '["gitlab","fs","duckduckgo-search"]',
        "mcp.tool_allowlist": '["*"]',
        "mcp.tool_denylist": '["delete_*"]',
    }
)


@pytest.mark.requirement("task:seed-example", "policy:requested:default")
def test_the_task_of_the_seed_gives_its_defaults_and_vetoes_delete():
    effective = compose(WORLD, SEED_TASK)
    assert effective.servers == ("gitlab", "fs")
    assert allowed(effective, "gitlab", *TOOLS) == ["read_file", "write_file", "search"]
    assert allowed(effective, "fs", *TOOLS) == ["read_file", "write_file"]
    assert reasons(effective) == {"duckduckgo-search": ("task", "not_default")}


@pytest.mark.requirement(
    "policy:seed-session", "policy:session-narrows-server", "policy:requested:session"
)
def test_the_session_of_the_seed_narrows_its_task_to_gitlab():
    asked, _ = parse_session_params({"mcp.server_ids": ["gitlab"]})
    effective = compose(WORLD, SEED_TASK, asked)
    assert effective.servers == ("gitlab",)
    assert reasons(effective)["fs"] == ("session", "not_requested")
    assert not effective.decide("fs", "read_file").allowed


@pytest.mark.requirement("task:seed-example", "task:larger-allow")
def test_a_session_may_choose_a_server_that_is_allowed_and_not_default():
    effective = compose(WORLD, SEED_TASK, session("duckduckgo-search"))
    assert effective.servers == ("duckduckgo-search",)


@pytest.mark.requirement("policy:session-refused")
@pytest.mark.parametrize("outside", ["jira", "unknown-to-all"])
def test_a_session_that_asks_for_more_than_its_task_allows_is_refused(outside: str):
    with pytest.raises(SessionRefused, match=outside) as refused:
        compose(WORLD, SEED_TASK, session("gitlab", outside))
    assert (refused.value.reason, refused.value.server) == ("not_allowed", outside)


@pytest.mark.requirement("policy:session-refused:disabled")
def test_a_session_cannot_enable_what_its_task_does_not():
    with pytest.raises(SessionRefused) as refused:
        compose(WORLD, task("fs", enabled=False), session(enabled=True))
    assert refused.value.reason == "task_disabled"


@pytest.mark.requirement("task:disabled-by-default", "policy:no-servers")
@pytest.mark.parametrize("asked", [session(), session(enabled=False), session("fs")])
def test_a_task_that_is_not_enabled_gives_nothing_and_no_refusal(asked: object):
    effective = compose(WORLD, TaskPolicy(default_server_ids=("fs",)), asked)  # pyright: ignore[reportArgumentType]
    assert effective.servers == ()
    assert reasons(effective) == {"fs": ("task", "task_disabled")}
    assert allowed(effective, "fs", *TOOLS) == []


@pytest.mark.requirement("policy:session-refused")
def test_a_disabled_task_still_refuses_servers_outside_its_ceiling():
    with pytest.raises(SessionRefused) as refused:
        compose(WORLD, task("fs", enabled=False), session("jira"))
    assert refused.value.reason == "not_allowed"


@pytest.mark.requirement("policy:session:disabled")
def test_a_session_that_turns_mcp_off_gets_nothing():
    effective = compose(WORLD, task("fs", "gitlab"), session(enabled=False))
    assert effective.servers == ()
    assert reasons(effective) == {
        "fs": ("session", "session_disabled"),
        "gitlab": ("session", "session_disabled"),
    }


@pytest.mark.requirement("policy:session-unknown-server", "policy:platform-eligible")
def test_a_server_the_platform_does_not_know_is_dropped_with_a_reason():
    bounded = task("fs", allowed_server_ids=["fs", "gone"])
    effective = compose(WORLD, bounded, session("gone", "fs"))
    assert effective.servers == ("fs",)
    assert reasons(effective) == {"gone": ("platform", "unknown_server")}


@pytest.mark.requirement("policy:intersection", "policy:reasons")
def test_every_server_left_out_says_which_layer_left_it_out():
    world = registry(server("a"), server("b", enabled=False), server("c", allowed_tools=[]))
    effective = compose(world, task("a", "b", "c", "d"))
    assert effective.servers == ("a",)
    assert reasons(effective) == {
        "b": ("platform", "server_disabled"),
        "c": ("platform", "deny_all"),
        "d": ("platform", "unknown_server"),
    }


@pytest.mark.requirement(
    "policy:disabled-server", "policy:deny-all-server", "record:enabled", "security:deny-by-default"
)
def test_servers_that_are_off_or_allow_nothing_offer_no_tool():
    world = registry(server("off", enabled=False), server("mute", allowed_tools=[]))
    effective = compose(world, None, session("off", "mute"))
    assert effective.servers == ()
    assert effective.decide("off", "x").reason == "server_disabled"
    assert effective.decide("mute", "x").reason == "deny_all"


@pytest.mark.requirement("security:deny-by-default", "policy:no-servers")
def test_with_nothing_configured_nothing_is_enabled():
    assert compose(registry()).servers == ()
    assert compose(WORLD).servers == ()
    assert compose(WORLD, TaskPolicy()).servers == ()
    assert compose(WORLD, TaskPolicy(enabled=True)).servers == ()
    assert not compose(WORLD).decide("fs", "read_file").allowed


def test_without_a_task_a_session_uses_exactly_the_servers_it_names():
    effective = compose(WORLD, None, session("jira", "gone", "fs", "jira"))
    assert effective.servers == ("jira", "fs")
    assert reasons(effective) == {"gone": ("platform", "unknown_server")}
    assert compose(WORLD, None, session(tool_allowlist=["*"])).servers == ()


@pytest.mark.requirement("task:allowed-defaults-to-default")
def test_without_a_ceiling_the_defaults_are_the_ceiling():
    with pytest.raises(SessionRefused, match="jira"):
        compose(WORLD, task("fs"), session("jira"))


@pytest.mark.requirement("task:default-outside-allowed")
def test_a_default_outside_the_ceiling_is_dropped_with_a_warning():
    effective = compose(WORLD, task("fs", "jira", allowed_server_ids=["fs", "gitlab"]))
    assert effective.servers == ("fs",)
    assert any("jira" in warning and "outside" in warning for warning in effective.warnings)
    assert reasons(effective)["jira"] == ("task", "not_allowed")


@pytest.mark.requirement("task:enabled-but-no-default")
def test_an_enabled_task_without_defaults_gives_a_warning():
    effective = compose(WORLD, task(allowed_server_ids=["fs"]))
    assert any("no default" in warning for warning in effective.warnings)
    assert not any("no default" in w for w in compose(WORLD, task("fs")).warnings)


@pytest.mark.requirement("policy:empty-warning")
def test_an_enabled_session_without_a_server_gives_a_warning_and_goes_on():
    effective = compose(WORLD, task("gone"))
    assert effective.servers == ()
    assert any("no server" in warning for warning in effective.warnings)
    quiet = compose(WORLD, task("fs"), session(enabled=False))
    assert not any("no server" in warning for warning in quiet.warnings)


@pytest.mark.requirement("policy:empty-allowlist", "policy:absent-allowlist")
def test_an_empty_allowlist_allows_nothing_and_an_absent_one_everything():
    for layer in ("task", "session"):
        for patterns, expected in ((None, ["read_file"]), ([], []), (["read_*"], ["read_file"])):
            fields = {"tool_allowlist": patterns}
            effective = compose(
                WORLD,
                task("fs", **(fields if layer == "task" else {})),
                session(**(fields if layer == "session" else {})),
            )
            assert allowed(effective, "fs", "read_file") == expected, (layer, patterns)


@pytest.mark.requirement("policy:empty-allowlist")
def test_a_session_with_an_empty_list_of_servers_gets_none():
    effective = compose(WORLD, task("fs"), session(server_ids=[]))
    assert effective.servers == ()


@pytest.mark.requirement("policy:tools-intersect", "policy:record-always-constrains")
def test_a_tool_must_be_allowed_by_record_task_and_session():
    narrowed = task("fs", tool_allowlist=["read_file", "write_file", "search"])
    effective = compose(WORLD, narrowed, session(tool_allowlist=["*_file", "search"]))
    assert allowed(effective, "fs", *TOOLS) == ["read_file", "write_file"]
    assert effective.decide("fs", "search").layer == "platform"
    assert effective.decide("fs", "delete_file").layer == "task"


@pytest.mark.requirement("policy:task-narrows-tools", "policy:session-narrows-tools")
def test_the_tasks_lists_hold_whatever_the_session_says():
    bounded = task("gitlab", tool_allowlist=["read_*", "delete_*"], tool_denylist=["delete_*"])
    asked = session(tool_allowlist=["*", "delete_file"])
    assert allowed(compose(WORLD, bounded, asked), "gitlab", *TOOLS) == ["read_file"]
    asked = session(tool_denylist=["read_*"])
    effective = compose(WORLD, bounded, asked)
    assert allowed(effective, "gitlab", *TOOLS) == []
    assert effective.decide("gitlab", "read_file").reason == "session_denied"
    assert effective.decide("gitlab", "delete_file").reason == "task_denied"
    assert effective.decide("gitlab", "search").reason == "task_not_allowlisted"


@pytest.mark.requirement("policy:pattern:server-qualified")
def test_a_session_narrows_by_server_and_by_tool_for_one_run():
    asked = session("gitlab", "fs", tool_allowlist=["gitlab/read_*", "fs/write_file"])
    effective = compose(WORLD, task("gitlab", "fs"), asked)
    assert allowed(effective, "gitlab", *TOOLS) == ["read_file"]
    assert allowed(effective, "fs", *TOOLS) == ["write_file"]


@pytest.mark.requirement("policy:deny-is-veto", "policy:platform:denylist")
def test_the_platforms_veto_stands_above_every_allow():
    world = registry(
        server("fs", allowed_tools=["delete_file", "*"]),
        server("jira"),
        platform=platform(tool_denylist=["delete_*", "jira/search"]),
    )
    bounded = task("fs", "jira", tool_allowlist=["delete_file", "*"])
    effective = compose(world, bounded, session(tool_allowlist=["delete_file", "*"]))
    assert allowed(effective, "fs", *TOOLS) == ["read_file", "write_file", "search"]
    assert allowed(effective, "jira", *TOOLS) == ["read_file", "write_file"]
    line = effective.decide("fs", "delete_file")
    assert (line.layer, line.reason) == ("platform", "platform_denied")
    assert "delete_*" in line.rule


@pytest.mark.requirement(
    "policy:read-only", "policy:read-only:unclassed", "policy:read-only:session"
)
def test_read_only_leaves_what_the_record_classes_as_read():
    world = registry(server("fs", effects={"read": ["read_*"], "idempotent": ["write_*"]}))
    for bounded, asked, layer in (
        (task("fs", read_only=True), session(), "task"),
        (task("fs"), session(read_only=True), "session"),
    ):
        effective = compose(world, bounded, asked)
        assert allowed(effective, "fs", *TOOLS) == ["read_file"]
        line = effective.decide("fs", "search")
        assert (line.layer, line.reason) == (layer, f"{layer}_read_only")


@pytest.mark.requirement("task:tags:select", "task:server-tags:key")
def test_a_task_that_asks_by_tag_gets_every_server_with_any_of_the_tags():
    effective = compose(WORLD, task(server_tags=["scm", "search"]))
    assert set(effective.servers) == {"gitlab", "jira", "duckduckgo-search"}
    with pytest.raises(SessionRefused, match="fs"):
        compose(WORLD, task(server_tags=["scm"]), session("fs"))
    assert compose(WORLD, task(server_tags=["none"])).servers == ()
    assert compose(WORLD, task(server_tags=[])).servers == ()


@pytest.mark.requirement("task:tags:narrow")
def test_tags_beside_ids_narrow_both_defaults_and_ceiling():
    bounded = task("gitlab", "fs", allowed_server_ids=["gitlab", "fs", "jira"], server_tags=["scm"])
    assert compose(WORLD, bounded).servers == ("gitlab",)
    assert compose(WORLD, bounded, session("jira")).servers == ("jira",)
    with pytest.raises(SessionRefused, match="fs"):
        compose(WORLD, bounded, session("fs"))


@pytest.mark.requirement("policy:outputs", "policy:log:fields")
def test_the_result_carries_servers_filters_and_a_log_of_reasons():
    effective = compose(WORLD, SEED_TASK, session("gitlab"))
    assert effective.servers == ("gitlab",)
    assert effective.revision == 1
    kept, dropped, *_ = effective.decisions
    assert (kept.server, kept.tool, kept.allowed, kept.reason) == ("gitlab", None, True, "allowed")
    assert (dropped.server, dropped.allowed, dropped.layer) == ("fs", False, "session")
    assert {line.server for line in effective.decisions} == {"gitlab", "fs", "duckduckgo-search"}
    line = effective.decide("gitlab", "delete_file")
    assert (line.server, line.tool, line.allowed) == ("gitlab", "delete_file", False)
    assert (line.layer, line.reason) == ("task", "task_denied")
    assert "delete_*" in line.rule
    assert str(line).startswith("gitlab/delete_file: denied at the task layer")


def test_a_task_record_and_its_policy_mean_the_same():
    record = TaskRecord(task_id="t", mcp=SEED_TASK)
    given, plain = compose(WORLD, record), compose(WORLD, SEED_TASK)
    assert (given.servers, given.decisions) == (plain.servers, plain.decisions)


@pytest.mark.requirement("policy:pattern:native-name")
def test_patterns_look_at_the_servers_own_name_for_a_tool():
    world = registry(server("fs", allowed_tools=["read.file"]))
    assert compose(world, task("fs")).decide("fs", "read.file").allowed
    qualified = compose(world, task("fs", tool_allowlist=["mcp__fs__*", "mcp.fs.*"]))
    assert not qualified.decide("fs", "read.file").allowed


def test_defaults_keep_their_order_and_come_once():
    assert compose(WORLD, task("fs", "gitlab", "fs")).servers == ("fs", "gitlab")
