"""An import that brings a server again takes over how it is started, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.control.registry.carryover import Brings
from bascule.control.registry.changes import words_of
from bascule.control.registry.imports import read_client_config
from bascule.control.registry.service import RegistryService, Written
from bascule.model.server import ServerRecord
from tests.control.registry.build import BY, changed, server

CLIENT = {"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}
POLICY: dict[str, Any] = {
    "display_name": "The time",
    "enabled": False,
    "tags": ["clock"],
    "tool_namespace": "clock",
    "allowed_tools": ["get_*"],
    "sharing": "session",
    "prewarm": True,
    "effects": {"read": ["get_*"]},
    "budgets": {"tool_timeout_ms": 20_000},
    "approval_policy": {"default": "always"},
    "hygiene": {"leaks": "block"},
}


async def bring(service: RegistryService, content: dict[str, Any], **options: Any) -> Written:
    records = read_client_config(content).records
    mode = options.pop("mode", "upsert")
    return await service.import_records(records, mode, BY, brings="connection", **options)


async def settled(service: RegistryService) -> ServerRecord:
    """Import a client's file, and set everything that such a file does not say."""
    await bring(service, CLIENT)
    await service.patch("server", "time", POLICY, BY)
    return service.snapshot().servers["time"]


@pytest.mark.requirement("registry:import:keeps-policy")
async def test_the_same_file_imported_again_changes_nothing(service: RegistryService):
    before = await settled(service)
    again = await bring(service, CLIENT)
    assert (again.change, service.snapshot().servers["time"]) == (None, before)


@pytest.mark.requirement("registry:import:keeps-policy")
@pytest.mark.parametrize("mode", ["upsert", "replace"])
async def test_only_how_a_server_is_started_is_taken_over(service: RegistryService, mode: str):
    before = await settled(service)
    entry = {"command": "npx", "args": ["-y", "time"], "env": {"A": "b"}, "disabled": True}
    await bring(service, {"mcpServers": {"time": entry}}, mode=mode)
    after = service.snapshot().servers["time"]
    assert after.stdio is not None
    assert (after.stdio.command, after.stdio.args) == ("npx", ("-y", "time"))
    assert after.stdio.env == {"A": "b"}
    for name in ServerRecord.__struct_fields__:
        if name != "stdio":
            assert getattr(after, name) == getattr(before, name), name


async def test_a_preview_says_what_an_import_then_does(service: RegistryService):
    await settled(service)
    moved = {"mcpServers": {"time": {"command": "npx"}}}
    preview = await bring(service, moved, mode="preview")
    done = await bring(service, moved)
    assert preview.diff().fields == done.diff().fields
    assert changed(preview.diff()) == changed(done.diff())


async def test_a_server_that_moves_to_a_url_keeps_its_policy_and_loses_its_command(
    service: RegistryService,
):
    await settled(service)
    await bring(service, {"mcpServers": {"time": {"url": "https://time.example.org/mcp"}}})
    after = service.snapshot().servers["time"]
    assert (after.transport, after.stdio) == ("streamable_http", None)
    assert after.allowed_tools == ("get_*",)


async def test_what_no_clients_file_can_say_of_a_start_is_kept(service: RegistryService):
    await bring(service, CLIENT)
    await service.patch("server", "time", {"stdio": {"env_from": ["TZ"]}}, BY)
    await bring(service, {"mcpServers": {"time": {"command": "npx"}}})
    stdio = service.snapshot().servers["time"].stdio
    assert stdio is not None
    assert (stdio.command, stdio.args, stdio.env_from) == ("npx", (), ("TZ",))


@pytest.mark.parametrize(
    ("url", "kept"),
    [("https://far.example.org/other", "${ENV:T}"), ("https://else.example.org/mcp", None)],
)
async def test_a_credential_is_kept_for_the_address_it_was_given_for(
    service: RegistryService, url: str, kept: str | None
):
    far: dict[str, Any] = {
        "server_id": "far",
        "transport": "http",
        "http": {"auth_ref": "${ENV:T}"},
    }
    far["http"]["url"] = "https://far.example.org/mcp"
    await service.create("server", far, BY)
    await bring(service, {"mcpServers": {"far": {"url": url}}})
    http = service.snapshot().servers["far"].http
    assert http is not None
    assert (http.url, http.auth_ref) == (url, kept)


@pytest.mark.requirement("registry:import:keeps-policy")
async def test_a_record_of_our_own_sets_the_fields_that_it_names(service: RegistryService):
    await settled(service)
    own = {"server_id": "time", "transport": "stdio", "stdio": {"command": "date"}}
    own |= {"allowed_tools": ["now"], "budgets": {"max_concurrency": 2}}
    await service.import_records([("server", own)], "upsert", BY, brings="fields")
    after = service.snapshot().servers["time"]
    assert (after.allowed_tools, after.tags, after.effects.read) == (
        ("now",),
        ("clock",),
        ("get_*",),
    )
    assert (after.budgets.max_concurrency, after.budgets.tool_timeout_ms) == (2, 20_000)
    assert after.stdio is not None
    assert (after.stdio.command, after.stdio.args) == ("date", ())


async def test_a_whole_record_replaces_the_one_that_is_there(service: RegistryService):
    await settled(service)
    brings: Brings = "records"
    await service.import_records([("server", server("time"))], "upsert", BY, brings=brings)
    assert service.snapshot().servers["time"].tags == ()


@pytest.mark.requirement("registry:import:changed-fields")
async def test_changed_fields_are_told_old_and_new_and_masked(service: RegistryService):
    entry = {"command": "uvx", "args": ["time"], "env": {"API_KEY": "old-secret", "LOG": "${L}"}}
    await bring(service, {"mcpServers": {"time": entry}})
    entry = {"command": "npx", "args": ["time"], "env": {"API_KEY": "new-secret", "LOG": "${M}"}}
    written = await bring(service, {"mcpServers": {"time": entry, "new": {"command": "x"}}})
    found = written.diff().fields
    assert {(one.id, one.field): (one.old, one.new) for one in found} == {
        ("time", "stdio.command"): ("uvx", "npx"),
        ("time", "stdio.env.API_KEY"): ("***", "***"),
        ("time", "stdio.env.LOG"): ("${ENV:L}", "${ENV:M}"),
    }
    assert "secret" not in "\n".join(map(words_of, found))
    assert "stdio.env.API_KEY: *** -> *** (another value)" in map(words_of, found)
