"""The past: what changed, what that means for access, and the way back."""

from __future__ import annotations

import pytest

from bascule.control.registry.errors import Compacted, FutureRevision, OwnedByFile
from bascule.control.registry.service import RegistryService, Settings, open_registry
from bascule.control.registry.store import Author, Retention, Store
from bascule.errors import InvalidRecord
from bascule.model.tool import ToolDescriptor, describe
from bascule.testing.clock import FakeClock
from tests.control.registry.build import BY, changed, server, write


async def some_past(service: RegistryService) -> None:
    """Make four revisions: two servers and a task, then the servers narrowed."""
    await service.put("server", "fs", server("fs", allowed_tools=["read_*", "write_file"]), BY)
    await service.put("server", "git", server("git"), BY)
    task = {
        "task_id": "review",
        "mcp": {"enabled": True, "default_server_ids": ["fs"], "allowed_server_ids": ["fs", "git"]},
    }
    await service.put("task", "review", task, BY)
    await service.put(
        "server", "fs", server("fs", allowed_tools=["read_*"]), Author("bea", "no writing")
    )


@pytest.mark.requirement("registry:history")
async def test_history_says_what_when_who_and_why(service: RegistryService):
    await some_past(service)
    history = await service.history()
    assert [change.revision for change in history] == [4, 3, 2, 1]
    assert (history[0].actor, history[0].note) == ("bea", "no writing")
    assert [entry.id for entry in history[0].entries] == ["fs"]
    assert [change.revision for change in await service.history(before=3, limit=1)] == [2]


@pytest.mark.requirement("registry:history")
async def test_revisions_are_compared_as_records_and_as_effective_access(service: RegistryService):
    await some_past(service)
    diff = await service.diff(3, 4)
    assert changed(diff) == "~ server fs"
    [task] = diff.access.tasks
    assert task.task == "review"
    assert [change.name for change in task.default.tools] == ["mcp__fs__write_file"]
    assert "allowed_tools: read_*, write_file -> read_*" in diff.text
    assert "task review, by default:" in diff.text
    assert [change.name for change in diff.access.platform.tools] == ["mcp__fs__write_file"]


async def test_a_server_that_a_session_may_ask_for_counts_as_access(service: RegistryService):
    """git is no default of the task, but within what it allows."""
    await some_past(service)
    await service.delete("server", "git", BY)
    diff = await service.diff(4)
    [task] = diff.access.tasks
    assert not task.default
    assert [lost.server for lost in task.most.servers_lost] == ["git"]
    assert "task review, at most:" in diff.text


async def test_a_task_that_comes_or_goes_gains_or_loses_its_access(service: RegistryService):
    await some_past(service)
    gained = (await service.diff(2, 3)).access.tasks[0]
    lost = (await service.diff(3, 2)).access.tasks[0]
    assert gained.default.servers_gained == ("fs",)
    assert gained.most.servers_gained == ("fs", "git")
    assert [decision.server for decision in lost.most.servers_lost] == ["fs", "git"]


async def test_with_a_catalogue_access_is_compared_tool_by_tool(service: RegistryService):
    await some_past(service)
    fs = service.snapshot().servers["fs"]
    tools = [
        describe(fs, {"name": name, "inputSchema": {"type": "object"}})
        for name in ("read_a", "write_file")
    ]
    service.known_tools = lambda: {"fs": tools}
    diff = await service.diff(3, 4)
    assert [change.name for change in diff.access.tasks[0].default.tools] == ["mcp__fs__write_file"]


async def test_nothing_differs_between_a_revision_and_itself(service: RegistryService):
    await some_past(service)
    diff = await service.diff(4)
    assert not diff
    assert diff.text == "no change"


@pytest.mark.requirement("registry:rollback")
async def test_a_rollback_is_a_new_revision_with_the_old_records(service: RegistryService):
    await some_past(service)
    await service.delete("task", "review", BY)
    await service.put("profile", "code", {"name": "code"}, BY)
    wanted = await service.snapshot_at(3)
    written = await service.rollback(3, Author("bea", "back to 3"))
    assert written.revision == 7
    now = service.snapshot()
    assert (now.servers, now.tasks, now.profiles) == (wanted.servers, wanted.tasks, {})
    assert (await service.history(limit=1))[0].note == "back to 3"
    assert (await service.get("server", "git")).revision == 2, "what did not differ is untouched"
    assert (await service.rollback(3, BY)).change is None
    assert not await service.diff(3, 7)


async def test_one_object_alone_can_be_rolled_back(service: RegistryService):
    await some_past(service)
    await service.delete("server", "git", BY)
    await service.rollback(3, BY, only=[("server", "fs")])
    assert set(service.snapshot().servers) == {"fs"}
    assert service.snapshot().servers["fs"].allowed_tools == ("read_*", "write_file")


async def test_a_rollback_keeps_the_rules_between_records(service: RegistryService):
    await service.put("server", "a", server("a", tool_namespace="mcp.x"), BY)
    await service.put("server", "a", server("a"), BY)
    await service.put("server", "b", server("b", tool_namespace="mcp.x"), BY)
    with pytest.raises(InvalidRecord, match="namespace of server 'b'"):
        await service.rollback(1, BY, only=[("server", "a")])
    assert (await service.rollback(1, BY)).revision == 4


async def test_what_a_file_owned_comes_back_as_nobodys_file(service: RegistryService, store: Store):
    await store.write([write("fs", owner="/etc/fs.toml")], BY)
    await store.write([write("git")], BY)
    with pytest.raises(OwnedByFile):
        await service.rollback(0, BY)
    await service.rollback(1, BY)
    assert (await service.get("server", "fs")).owner == "/etc/fs.toml", "it did not change"
    await service.adopt("server", "fs", BY)
    await service.delete("server", "fs", BY)
    await service.rollback(1, BY)
    assert (await service.get("server", "fs")).owner is None


async def test_what_is_not_kept_or_not_yet_there_cannot_be_gone_back_to(
    store: Store, clock: FakeClock
):
    settings = Settings(retention=Retention(changes=1))
    async with open_registry(store, clock=clock, settings=settings) as service:
        await some_past(service)
        await service.compact()
        for gone in (service.rollback(2, BY), service.diff(2), service.snapshot_at(0)):
            with pytest.raises(Compacted):
                await gone
        with pytest.raises(FutureRevision):
            await service.rollback(9, BY)
        assert (await service.diff(3, 4)).changes
        assert service.view.revision == 4


# --- what a difference says


def described(service: RegistryService, server_id: str, *names: str) -> list[ToolDescriptor]:
    record = service.snapshot().servers[server_id]
    return [describe(record, {"name": n, "inputSchema": {"type": "object"}}) for n in names]


@pytest.mark.requirement("registry:diff:fields")
async def test_changed_fields_are_shown_old_and_new(service: RegistryService):
    await service.put("server", "fs", server("fs", allowed_tools=["read_*"]), BY)
    changed = server("fs", allowed_tools=["read_*", "write"], enabled=False)
    changed["budgets"] = {"max_concurrency": 2}
    await service.put("server", "fs", changed, BY)
    diff = await service.diff(1, 2)
    found = {one.field: (one.old, one.new) for one in diff.fields}
    assert found["allowed_tools"] == (["read_*"], ["read_*", "write"])
    assert found["enabled"] == (True, False)
    assert found["budgets.max_concurrency"] == (8, 2)
    assert len(found) == 3
    lines = diff.text.splitlines()
    assert lines[0] == "~ server fs"
    assert "    allowed_tools: read_* -> read_*, write" in lines
    assert "    enabled: true -> false" in lines


@pytest.mark.requirement("registry:diff:fields")
async def test_nobodys_literals_are_shown_in_a_difference(service: RegistryService):
    for token in ("s3cr3t-one", "s3cr3t-two"):
        stdio = {"command": "true", "env": {"TOKEN": token}}
        await service.put("server", "fs", server("fs", stdio=stdio), BY)
    diff = await service.diff(1, 2)
    [only] = diff.fields
    assert (only.field, only.old, only.new) == ("stdio.env.TOKEN", "***", "***")
    assert "s3cr3t" not in diff.text
    assert "stdio.env.TOKEN: *** -> *** (another value)" in diff.text


@pytest.mark.requirement("registry:diff:expanded")
async def test_patterns_are_expanded_where_the_tools_are_known(service: RegistryService):
    await some_past(service)
    await service.put("server", "git", server("git", allowed_tools=["log_*"]), BY)
    known = {"git": described(service, "git", "commit", "log_all", "push")}
    service.known_tools = lambda: known
    diff = await service.diff(4)
    lost = [str(change) for change in diff.access.platform.tools]
    assert lost == [
        "- mcp__git__commit (allowed_tools: the server's allowed_tools do not cover it)",
        "- mcp__git__push (allowed_tools: the server's allowed_tools do not cover it)",
    ]
    back = await service.rollback(4, BY)
    gained = (await service.diff_of(back)).access.platform.tools
    assert [str(change).partition(" (")[0] for change in gained] == [
        "+ mcp__git__commit",
        "+ mcp__git__push",
    ]
    assert all("(before: allowed_tools: " in str(change) for change in gained)


@pytest.mark.requirement("registry:diff:expanded")
async def test_known_tools_of_one_server_do_not_hide_the_literals_of_another(
    service: RegistryService,
):
    await some_past(service)
    service.known_tools = lambda: {"git": described(service, "git", "commit")}
    diff = await service.diff(3, 4)
    assert [change.name for change in diff.access.platform.tools] == ["mcp__fs__write_file"]


@pytest.mark.requirement("registry:diff:reason")
async def test_the_reason_is_that_of_the_change(service: RegistryService):
    await some_past(service)
    known = {"fs": described(service, "fs", "read_a")}
    service.known_tools = lambda: known
    policy = {"enabled": True, "default_server_ids": ["fs"], "tool_denylist": ["read_*"]}
    await service.put("task", "review", {"task_id": "review", "mcp": policy}, BY)
    text = (await service.diff(4)).text
    assert "- mcp__fs__read_a (task tool_denylist 'read_*': the task's tool denylist" in text
    await service.delete("server", "fs", BY)
    assert "- mcp__fs__read_a (no server of that id is registered)" in str(
        (await service.diff(4, 6)).access.platform
    )


@pytest.mark.requirement("registry:diff:reason")
async def test_a_task_that_came_or_went_is_not_called_switched_off(service: RegistryService):
    await some_past(service)
    service.known_tools = lambda: {"fs": described(service, "fs", "read_a")}
    came, went = [(await service.diff(*two)).text for two in ((2, 3), (3, 2))]
    assert "+ mcp__fs__read_a (before: there is no such task)" in came
    assert "- server fs (there is no such task)" in went
    assert "- mcp__fs__read_a (there is no such task)" in went
    assert "does not enable MCP" not in came + went
