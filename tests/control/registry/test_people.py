"""People in the registry: advice on their records, their pages, and what a revision did to them."""

from __future__ import annotations

from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Author
from tests.control.registry.build import server

BY = Author("admin")


async def test_a_record_that_names_unknown_servers_or_groups_is_advised_on(
    service: RegistryService,
):
    await service.create("server", server("fs"), BY)
    person = {"user_id": "alice", "enabled_server_ids": ["fss"], "groups": ["writers"]}
    written = await service.create("user", person, BY)
    assert written.warnings == ("user 'alice': there is no server 'fss'; did you mean 'fs'?",)
    mcp = {"enabled": True, "default_server_ids": ["fs"], "allowed_groups": ["writers", "writrs"]}
    task = await service.create("task", {"task_id": "t", "mcp": mcp}, BY)
    assert task.warnings == ("task 't': nobody is in group 'writrs' yet",)


async def test_a_difference_says_what_a_person_gained_and_lost(service: RegistryService):
    await service.create("server", server("fs", allowed_tools=["read", "write"]), BY)
    await service.create("user", {"user_id": "alice"}, BY)
    await service.patch("user", "alice", {"own": {"tool_denylist": ["write"]}}, BY)
    await service.patch("user", "alice", {"enabled": False}, BY)
    [came] = (await service.diff(1, 2)).access.users
    assert (came.user, came.most.servers_gained) == ("alice", ("fs",))
    [narrowed] = (await service.diff(2, 3)).access.users
    [tool] = narrowed.most.tools
    assert tool.after is not None
    assert (tool.name, tool.after.reason) == ("mcp__fs__write", "user_denied")
    [off] = (await service.diff(3, 4)).access.users
    assert [one.reason for one in off.most.servers_lost] == ["user_disabled"]
    assert "user alice, at most:" in (await service.diff(3, 4)).text


async def test_a_task_for_groups_is_compared_like_any_other(service: RegistryService):
    await service.create("server", server("fs", allowed_tools=["read"]), BY)
    mcp = {"enabled": True, "default_server_ids": ["fs"], "allowed_groups": ["nobody"]}
    await service.create("task", {"task_id": "t", "mcp": mcp}, BY)
    await service.patch("server", "fs", {"allowed_tools": ["read", "write"]}, BY)
    [task] = (await service.diff(2, 3)).access.tasks
    assert [change.name for change in task.default.tools] == ["mcp__fs__write"]
