"""The difference between two effective policies: what a reviewer needs to see."""

from __future__ import annotations

import pytest

from bascule.policy.compose import compose
from bascule.policy.explain import diff
from tests.policy.build import registry, server, session, task, tool

FS = server("fs", allowed_tools=["read", "write", "drop_*"])
GITLAB = server("gitlab", allowed_tools=["merge"])
WORLD = registry(FS, GITLAB)
CATALOGUE = {
    "fs": [tool(FS, name) for name in ("read", "write", "drop_all")],
    "gitlab": [tool(GITLAB, "merge")],
}
BEFORE = compose(WORLD, task("fs"))


@pytest.mark.requirement("policy:diff")
def test_no_difference_is_falsy_and_says_so():
    change = diff(BEFORE, compose(WORLD, task("fs")), CATALOGUE)
    assert not change
    assert str(change) == "no change in access"


@pytest.mark.requirement("policy:diff")
def test_servers_gained_and_lost_are_named():
    change = diff(BEFORE, compose(WORLD, task("gitlab")), CATALOGUE)
    assert change
    assert change.servers_gained == ("gitlab",)
    (lost,) = change.servers_lost
    assert (lost.server, lost.layer, lost.reason) == ("fs", "task", "not_allowed")
    lines = str(change).splitlines()
    assert "+ server gitlab" in lines
    assert any(line.startswith("- server fs (") for line in lines)


@pytest.mark.requirement("policy:diff")
def test_tools_gained_and_lost_are_named_with_the_reason():
    narrowed = compose(WORLD, task("fs", tool_denylist=["drop_*"]))
    for before, after, sign in ((BEFORE, narrowed, "-"), (narrowed, BEFORE, "+")):
        change = diff(before, after, CATALOGUE)
        (only,) = change.tools
        assert only.name == "mcp__fs__drop_all"
        assert str(only).startswith(f"{sign} mcp__fs__drop_all")
        assert change.servers_gained == change.servers_lost == ()
    lost = diff(BEFORE, narrowed, CATALOGUE).tools[0]
    assert lost.after is not None
    assert lost.after.reason == "task_denied"


@pytest.mark.requirement("policy:diff")
def test_the_tools_of_a_lost_server_are_lost_and_those_of_a_gained_one_gained():
    change = diff(BEFORE, compose(WORLD, task("gitlab")), CATALOGUE)
    assert [str(line)[:2] + line.name for line in change.tools] == [
        "- mcp__fs__drop_all",
        "- mcp__fs__read",
        "- mcp__fs__write",
        "+ mcp__gitlab__merge",
    ]


@pytest.mark.requirement("policy:diff")
def test_without_a_catalogue_the_tools_named_outright_are_compared():
    change = diff(BEFORE, compose(WORLD, task("fs", tool_allowlist=["read"])))
    assert [line.name for line in change.tools] == ["mcp__fs__write"]


@pytest.mark.requirement("policy:diff")
@pytest.mark.parametrize(
    ("after", "word"),
    [
        (compose(WORLD, task("fs", tool_denylist=["secret_*"])), "secret_*"),
        (compose(WORLD, task("fs", tool_allowlist=[])), "nothing"),
        (compose(WORLD, task("fs", read_only=True)), "read_only"),
        (compose(WORLD, task("fs"), session(tool_denylist=["x"])), "session tool_denylist"),
        (compose(registry(server("fs", allowed_tools=["other"])), task("fs")), "fs allowed_tools"),
    ],
)
def test_a_changed_filter_shows_even_when_no_known_tool_changes(after: object, word: str):
    change = diff(BEFORE, after, {})  # pyright: ignore[reportArgumentType]
    assert change.filters
    assert word in str(change)
