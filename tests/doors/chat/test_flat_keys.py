"""The requirements' own session keys (``mcp.enabled`` …) narrow, or are refused; none goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.doors.chat.site import READ, WRITE, Site, serving
from tests.loop.fakes import says
from tests.policy.build import server

HELLO = [{"role": "user", "content": "Hello"}]
Json = dict[str, Any]


@pytest.fixture
async def wide() -> AsyncGenerator[Site, None]:
    """Serve a site whose task allows two servers."""
    made = Site(records=(server("fs"), server("git")))
    task = {"enabled": True, "default_server_ids": ["fs", "git"]}
    made.world.apply(tasks={"writer": task, "off": {"enabled": False}})
    async with serving(made) as served:
        yield served


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": HELLO, **fields}).encode()


def nothing_of_ours(sent: Any) -> bool:
    """Say whether no key of a request to an upstream is about MCP."""
    keys = [*sent, *(sent.get("metadata") or {})]
    return not any(key.lower().startswith("mcp") for key in keys)


async def offered(site: Site, **fields: Any) -> set[str]:
    """Return the names of the tools that the upstream is shown; none of our keys may be there."""
    upstream = site.script(says("Hi."))
    upstream.asked.clear()
    status, _, answer = await site.post(body(**fields))
    assert status == 200, answer
    [sent] = upstream.asked
    assert nothing_of_ours(sent)
    return {tool["function"]["name"] for tool in sent.get("tools", ())}


FS = {f"mcp__fs__{name}" for name in ("delete", "read", "write")}


@pytest.mark.requirement("chat:session-params:flat")
@pytest.mark.parametrize(
    ("flat", "expected"),
    [
        ({"mcp.server_ids": ["fs"]}, FS),
        ({"mcp.server_ids": '["fs"]'}, FS),
        ({"mcp.server_ids": "fs"}, FS),
        ({"mcp.server_ids": ["fs"], "mcp.tool_allowlist": ["read"]}, {READ}),
        ({"mcp.tool_allowlist": '["fs/read"]'}, {READ}),
        ({"mcp.tool_allowlist": "fs/read, fs/write"}, {READ, WRITE}),
        ({"mcp.tool_denylist": ["delete", "write", "git/*"]}, {READ}),
        ({"mcp.tool_denylist": '["delete", "write", "git/*"]'}, {READ}),
        ({"mcp.server_ids": []}, set()),
        ({"mcp.tool_allowlist": "[]"}, set()),
        ({"mcp.enabled": True, "mcp.tool_allowlist": ["fs/read"]}, {READ}),
        ({"mcp.enabled": "true", "mcp.tool_allowlist": ["fs/read"]}, {READ}),
        ({"mcp.enabled": None, "mcp.tool_allowlist": ["fs/read"]}, {READ}),
    ],
)
@pytest.mark.parametrize("place", ["beside", "metadata"])
async def test_a_flat_key_narrows_as_the_object_does(
    wide: Site, flat: Json, expected: set[str], place: str
):
    fields = flat if place == "beside" else {"metadata": {"user": "u1", **flat}}
    assert await offered(wide, **fields) & FS == expected
    if not expected or expected == FS:
        assert await offered(wide, **fields) == expected


@pytest.mark.requirement("chat:session-params:flat")
@pytest.mark.parametrize(
    "fields",
    [
        {"mcp": {"tool_allowlist": ["fs/*"]}, "mcp.tool_denylist": ["delete", "write"]},
        {"mcp": {"tool_allowlist": ["fs/read", "fs/write"]}, "mcp.tool_allowlist": ["fs/read"]},
        {
            "mcp": {"server_ids": ["fs", "git"]},
            "mcp.server_ids": ["fs"],
            "mcp.tool_allowlist": "read",
        },
        {"mcp.tool_allowlist": ["fs/*"], "metadata": {"mcp.tool_allowlist": '["read"]'}},
        {"mcp": {"server_ids": ["fs"]}, "metadata": {"mcp.tool_denylist": "delete,write"}},
        {"mcp": {"tool_allowlist": ["fs/re*"]}, "mcp.tool_allowlist": ["*ad"]},
    ],
)
async def test_given_in_several_places_they_narrow_together(wide: Site, fields: Json):
    assert await offered(wide, **fields) == {READ}


@pytest.mark.requirement("chat:session-params:flat")
async def test_a_header_and_a_flat_key_narrow_together(wide: Site):
    upstream = wide.script(says("Hi."))
    sent = body(**{"mcp.tool_allowlist": ["read"]})
    await wide.post(sent, headers={"X-Bascule-Servers": "fs"})
    assert [tool["function"]["name"] for tool in upstream.asked[0]["tools"]] == [READ]


@pytest.mark.requirement("chat:session-params:flat")
@pytest.mark.parametrize("value", [False, "false", "0", "no"])
@pytest.mark.parametrize("place", ["beside", "metadata"])
async def test_a_flat_key_switches_mcp_off_and_does_not_pass_on(wide: Site, value: Any, place: str):
    flat = {"mcp.enabled": value}
    fields = flat if place == "beside" else {"metadata": {"user": "u1", **flat}}
    await wide.post(body(temperature=1.0, **fields))
    [sent] = [json.loads(raw) for raw in wide.upstream.forwarded]
    assert nothing_of_ours(sent)
    assert sent["temperature"] == 1.0
    assert sent.get("metadata") == (None if place == "beside" else {"user": "u1"})


@pytest.mark.requirement("chat:session-params:flat")
async def test_off_in_one_place_is_off(wide: Site):
    await wide.post(body(mcp={"enabled": True}, **{"mcp.enabled": False}))
    assert len(wide.upstream.forwarded) == 1
    assert not wide.upstream.asked


@pytest.mark.requirement("chat:session-params:flat")
async def test_with_mcp_off_by_the_task_no_key_of_ours_passes_on(wide: Site):
    sent = body(**{"mcp.tool_denylist": ["write"], "metadata": {"mcp.enabled": "false"}})
    status, _, _ = await wide.post(sent, "off")
    [passed] = [json.loads(raw) for raw in wide.upstream.forwarded]
    assert status == 200
    assert nothing_of_ours(passed)
    assert "metadata" not in passed


@pytest.mark.requirement("chat:session-params:flat")
@pytest.mark.parametrize("task", ["writer", "off"])
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"mcp.tool_denylst": ["write"]}, "mcp.tool_denylst"),
        ({"mcp.task_tool_allowlist": ["*"]}, "mcp.task_tool_allowlist"),
        ({"mcp.": 1}, "mcp."),
        ({"MCP.enabled": False}, "MCP.enabled"),
        ({"Mcp": {"enabled": False}}, "Mcp"),
        ({"metadata": {"mcp.tool_denylst": "write"}}, "metadata.mcp.tool_denylst"),
        ({"\uff4d\uff43\uff50\uff0eenabled": False}, "\uff4d\uff43\uff50\uff0eenabled"),
        ({"mcp\u2024enabled": False}, "mcp\u2024enabled"),
        ({"mcp\u200b.enabled": False}, "mcp\u200b.enabled"),
        ({"metadata": {"session": {"mcp.enabled": False}}}, "metadata.session.mcp.enabled"),
        ({"metadata": [{"mcp.enabled": False}]}, "metadata.mcp.enabled"),
        ({"extra_body": {"mcp.enabled": False}}, "extra_body.mcp.enabled"),
        ({"extra_body": {"mcp": {"enabled": False}}}, "extra_body.mcp"),
        ({"metadata": {"mcp": {"enabled": False}}}, "metadata.mcp"),
        ({"mcp.enabled": "perhaps"}, "mcp.enabled"),
        ({"mcp.enabled": 0}, "mcp.enabled"),
        ({"mcp.server_ids": {"fs": True}}, "mcp.server_ids"),
        ({"mcp.server_ids": '["fs"'}, "mcp.server_ids"),
        ({"mcp.tool_allowlist": [1]}, "mcp.tool_allowlist"),
        ({"mcp.tool_denylist": ["mcp__fs__write"]}, "mcp.tool_denylist"),
        ({"mcp.tool_denylist": ["x"] * 2000}, "mcp.tool_denylist"),
        ({"metadata": {"mcp.tool_denylist": "[1]"}}, "metadata.mcp.tool_denylist"),
    ],
)
async def test_any_other_key_is_refused_by_its_name(
    wide: Site, fields: Json, named: str, task: str
):
    status, _, answer = await wide.post(body(**fields), task)
    error = json.loads(answer)["error"]
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", named)
    assert named in error["message"]
    assert not wide.upstream.forwarded
    assert not wide.upstream.asked


@pytest.mark.requirement("chat:session-params:flat")
async def test_a_misspelt_key_is_told_which_was_meant(wide: Site):
    _, _, answer = await wide.post(body(**{"mcp.tool_denylst": ["write"]}))
    assert "did you mean 'mcp.tool_denylist'?" in json.loads(answer)["error"]["message"]


@pytest.mark.requirement("chat:session-params:flat", "chat:session-params:too-much")
async def test_a_flat_key_cannot_ask_for_more_than_the_task_allows(wide: Site):
    status, _, _ = await wide.post(body(**{"mcp.server_ids": ["other"]}))
    assert status == 403
    status, _, _ = await wide.post(body(**{"mcp.enabled": True}), "off")
    assert status == 403
