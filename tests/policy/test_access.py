"""An effective policy against the tools that are really there: names in, grants out."""

from __future__ import annotations

import pytest

from bascule.policy.access import compile_access
from bascule.policy.compose import compose
from tests.policy.build import access, platform, registry, server, session, task, tool

FS = server("fs", effects={"read": ["read_*"], "idempotent": ["put_*"]})
GITLAB = server("gitlab", allowed_tools=["read_*"])
WORLD = registry(FS, GITLAB, server("other"))
BOTH = compose(WORLD, task("gitlab", "fs", tool_denylist=["delete_*"]))


@pytest.mark.requirement("policy:decide:lookup", "names:form")
def test_tools_are_granted_by_their_model_facing_names():
    table = access(BOTH, "read_file", "write_file", "delete_file")
    assert list(table.grants) == [
        "mcp__gitlab__read_file",
        "mcp__fs__read_file",
        "mcp__fs__write_file",
    ]
    grant = table.grants["mcp__fs__read_file"]
    assert (grant.tool.name, grant.record.server_id) == ("read_file", "fs")
    assert table.decide("mcp__fs__read_file") is grant.decision
    assert grant.decision.allowed


@pytest.mark.requirement("names:order")
def test_servers_come_in_the_policys_order_and_tools_by_name():
    table = access(BOTH, "read_b", "read_a", "a")
    assert [(listed.server_id, listed.name) for listed in table.tools] == [
        ("gitlab", "read_a"),
        ("gitlab", "read_b"),
        ("fs", "a"),
        ("fs", "read_a"),
        ("fs", "read_b"),
    ]


@pytest.mark.requirement("names:input:dotted", "names:input:slash")
def test_the_other_spellings_lead_to_the_same_tool():
    world = registry(server("fs", tool_namespace="files.v2"))
    table = access(compose(world, None, session("fs")), "read")
    spellings = ("files__v2__read", "files.v2.read", "mcp.fs.read", "fs/read")
    found = [table.resolve(name) for name in spellings]
    assert all(grant is not None and grant is found[0] for grant in found)
    assert all(table.decide(name).allowed for name in spellings)


@pytest.mark.requirement("names:dots-in-tool", "names:route-back")
def test_a_tool_with_dots_is_found_by_its_dotted_spelling():
    table = access(compose(WORLD, None, session("fs")), "a.b.c", "a.b", "x/y")
    for name, native in (("mcp.fs.a.b.c", "a.b.c"), ("mcp.fs.a.b", "a.b"), ("fs/x/y", "x/y")):
        grant = table.resolve(name)
        assert grant is not None
        assert grant.tool.name == native


@pytest.mark.requirement("names:route-back")
def test_a_spelling_that_could_mean_two_tools_means_neither():
    world = registry(server("a", tool_namespace="mcp.b"), server("b", tool_namespace="mcp.a"))
    table = access(compose(world, None, session("a", "b")), "t")
    assert table.resolve("mcp.a.t") is None
    assert not table.decide("mcp.a.t").allowed
    assert table.resolve("a/t") is table.grants["mcp__b__t"]


@pytest.mark.requirement("policy:decide:unlisted", "names:unknown")
@pytest.mark.parametrize(
    "name",
    [
        "mcp__fs__missing",
        "mcp.fs.missing",
        "fs/missing",
        "read_files",
        "mcp__fs__",
        "mcp__fs",
        "",
        "MCP__fs__read_file",
        "mcp__fs__read_file ",
        "mcp__FS__read_file",
        "mcp__ZnM__cmVhZF9maWxl",
        "fs_read_file",
    ],
)
def test_a_name_that_is_not_listed_leads_nowhere(name: str):
    table = access(BOTH, "read_file")
    assert not table.decide(name).allowed
    assert table.resolve(name) is None


@pytest.mark.requirement("policy:decide:unlisted")
def test_a_tool_the_server_does_not_list_is_unknown_although_patterns_allow_it():
    line = access(BOTH, "read_file").decide("mcp__fs__read_other")
    assert (line.server, line.tool, line.reason) == ("fs", "read_other", "unknown_tool")


@pytest.mark.requirement("policy:decide:lookup", "policy:reasons")
def test_a_denied_tool_says_why_in_every_spelling():
    table = access(BOTH, "read_file", "delete_file", "write_file")
    for name in ("mcp__fs__delete_file", "mcp.fs.delete_file", "fs/delete_file"):
        assert table.decide(name).reason == "task_denied"
        assert table.resolve(name) is None
    assert table.decide("gitlab/write_file").reason == "not_in_allowed_tools"
    assert table.decide("other/read_file").reason in ("not_allowed", "not_requested")


def test_two_tools_of_one_name_are_both_kept_back():
    """Namespaces are unique in a registry; should two still meet, neither may shadow the other."""
    world = registry(server("a", tool_namespace="x"), server("b", tool_namespace="x"))
    table = access(compose(world, None, session("a", "b")), "t", "u")
    assert table.grants == {}
    assert {line.reason for line in table.decisions.values()} == {"name_collision"}
    assert table.resolve("a/t") is None


def test_a_tool_listed_three_times_stays_kept_back():
    thrice = [tool(FS, "t"), tool(FS, "t", description="other"), tool(FS, "t")]
    table = compile_access(compose(WORLD, None, session("fs")), {"fs": thrice})
    assert table.grants == {}


@pytest.mark.requirement("record:effects", "record:effects:default")
def test_a_grant_knows_the_class_of_its_tool():
    table = access(compose(WORLD, None, session("fs")), "read_a", "put_a", "other")
    classes = {name: (g.read, g.idempotent) for name, g in table.grants.items()}
    assert classes == {
        "mcp__fs__read_a": (True, True),
        "mcp__fs__put_a": (False, True),
        "mcp__fs__other": (False, False),
    }


@pytest.mark.requirement("record:descriptor:annotations")
def test_what_a_server_says_of_its_own_tools_decides_nothing():
    hints = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False}
    trusting = [tool(FS, "drop", annotations=hints)]
    table = compile_access(compose(WORLD, None, session("fs")), {"fs": trusting})
    grant = table.grants["mcp__fs__drop"]
    assert (grant.read, grant.idempotent) == (False, False)
    assert grant.tool.annotations == hints
    narrowed = compile_access(compose(WORLD, None, session("fs", read_only=True)), {"fs": trusting})
    assert narrowed.grants == {}


@pytest.mark.requirement("budgets:platform-ceiling")
def test_a_budget_above_the_platforms_ceiling_is_lowered_to_it():
    record = server("fs", budgets={"tool_timeout_ms": 60_000, "max_concurrency": 2})
    world = registry(
        record, platform=platform(ceilings={"tool_timeout_ms": 5_000, "max_concurrency": 4})
    )
    budgets = access(compose(world, None, session("fs")), "t").grants["mcp__fs__t"].budgets
    assert (budgets.tool_timeout_ms, budgets.max_concurrency) == (5_000, 2)
    assert budgets.list_timeout_ms == 12_000


@pytest.mark.requirement("budgets:platform-ceiling")
@pytest.mark.parametrize(
    "field",
    [
        "connect_timeout_ms",
        "list_timeout_ms",
        "tool_timeout_ms",
        "max_concurrency",
        "max_tool_output_bytes",
    ],
)
def test_every_budget_has_a_ceiling(field: str):
    world = registry(server("fs", budgets={field: 9}), platform=platform(ceilings={field: 3}))
    grants = access(compose(world, None, session("fs")), "t").grants
    assert getattr(grants["mcp__fs__t"].budgets, field) == 3


def test_a_catalogue_without_a_server_or_with_a_foreign_one_harms_nobody():
    table = compile_access(BOTH, {"other": [tool(server("other"), "read_file")]})
    assert table.tools == ()
    assert not table.decide("mcp__other__read_file").allowed
