"""Which tool a name means: every spelling, nothing in doubt, nothing that is not to be seen."""

from __future__ import annotations

import pytest

from bascule.policy.access import Access, compile_access
from bascule.policy.compose import compose
from bascule.policy.naming import nearest, no_such_tool
from tests.policy.build import registry, server, task, tool

FS, GIT, EVIL = server("fs"), server("git"), server("evil")


def access(denied: tuple[str, ...] = (), **tools: tuple[str, ...]) -> Access:
    known = {"fs": FS, "git": GIT, "evil": EVIL}
    effective = compose(registry(*known.values()), task(*tools, tool_denylist=list(denied)))
    return compile_access(
        effective, {s: [tool(known[s], name) for name in names] for s, names in tools.items()}
    )


@pytest.mark.requirement("names:spellings")
@pytest.mark.parametrize("name", ["mcp__fs__read", "mcp.fs.read", "fs/read", "fs.read", "read"])
def test_every_spelling_means_the_tool(name: str):
    grant = access(fs=("read", "write"), git=("log",)).resolve(name)
    assert grant is not None
    assert grant.tool.model_name == "mcp__fs__read"


@pytest.mark.requirement("names:ambiguous")
def test_a_bare_name_of_two_tools_is_refused_with_both():
    table = access(fs=("read",), git=("read",))
    assert table.resolve("read") is None
    decision = table.decide("read")
    assert decision.reason == "ambiguous_name"
    failure = no_such_tool(decision, table.tools)
    assert failure.code == "mcp_invalid_arguments"
    assert failure.details is not None
    assert failure.details["did_you_mean"] == ["mcp__fs__read", "mcp__git__read"]


@pytest.mark.requirement("names:spellings")
def test_a_bare_name_means_the_one_that_may_be_used():
    table = access(fs=("read",), git=("read",), denied=("git/read",))
    grant = table.resolve("read")
    assert grant is not None
    assert grant.tool.server_id == "fs"


@pytest.mark.requirement("names:spellings")
def test_a_bare_name_of_a_denied_tool_is_denied():
    decision = access(fs=("read", "drop"), denied=("drop",)).decide("drop")
    assert (decision.server, decision.reason) == ("fs", "task_denied")


@pytest.mark.requirement("names:ambiguous")
@pytest.mark.parametrize("name", ["fs/drop", "fs.drop", "mcp.fs.drop", "mcp__fs__drop", "fs/gone"])
def test_another_servers_tool_never_answers_for_a_spelling_that_names_a_server(name: str):
    table = access(fs=("read", "drop"), evil=(name,), denied=("fs/drop",))
    assert table.resolve(name) is None
    assert not table.decide(name).allowed


@pytest.mark.requirement("names:unknown:told")
def test_what_is_near_is_named_from_what_the_caller_may_see_alone():
    table = access(fs=("read_file", "read_secret"), denied=("read_secret",))
    failure = no_such_tool(table.decide("fs/read_secre"), table.tools)
    assert failure.details is not None
    assert "read_secret" not in failure.message + str(failure.details["did_you_mean"])
    assert nearest("fs.raed_file", table.tools) == ("mcp__fs__read_file",)
    assert nearest("raed_file", table.tools) == ("mcp__fs__read_file",)
    assert nearest("x" * 100_000, table.tools) == ()
