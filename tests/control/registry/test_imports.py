"""Clients' files become records that allow nothing yet."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.control.registry.imports import is_client_config, read_client_config
from bascule.control.registry.service import RegistryService
from bascule.errors import InvalidRecord
from bascule.model.sandbox import Sandbox
from tests.control.registry.build import BY

CLAUDE_DESKTOP = {
    "mcpServers": {
        "filesystem": {"command": "npx", "args": ["-y", "server-files", "/data"]},
        "GitHub (work)": {"command": "docker", "env": {"GITHUB_TOKEN": "abc", "LOG": "1"}},
    }
}
CLAUDE_CODE = {
    "mcpServers": {
        "api": {
            "type": "http",
            "url": "${API_URL:-https://example.org}/mcp",
            "headers": {"Authorization": "Bearer ${API_KEY}"},
        },
        "old": {"type": "sse", "url": "https://example.org/sse"},
    }
}
CURSOR = {
    "mcpServers": {
        "notes": {
            "command": "python",
            "args": ["${workspaceFolder}/notes.py", "cost: $$5"],
            "env": {"KEY": "${env:NOTES_KEY}"},
            "envFile": ".env",
            "disabled": True,
        },
        "remote": {"url": "https://example.org/mcp"},
    }
}
VS_CODE = {
    "inputs": [{"type": "promptString", "id": "perplexity-key", "password": True}],
    "servers": {
        "perplexity": {
            "type": "stdio",
            "command": "${userHome}/bin/server",
            "env": {"API_KEY": "${input:perplexity-key}"},
        }
    },
}


def by_id(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {str(plain["server_id"]): dict(plain) for _, plain in read_client_config(data).records}


@pytest.mark.parametrize("data", [CLAUDE_DESKTOP, CLAUDE_CODE, CURSOR, VS_CODE, {"mcp": VS_CODE}])
async def test_every_clients_form_is_imported_and_allows_nothing(
    service: RegistryService, data: dict[str, Any]
):
    assert is_client_config(data)
    found = read_client_config(data)
    await service.import_records(found.records, "upsert", BY)
    servers = service.snapshot().servers
    assert set(servers) == set(by_id(data))
    assert all(record.allowed_tools == () for record in servers.values())


def test_the_tools_that_are_named_besides_are_allowed_for_every_server():
    found = read_client_config(CURSOR, ["read_*"])
    assert [record["allowed_tools"] for _, record in found.records] == [["read_*"]] * 2


@pytest.mark.requirement("record:sandbox:new")
async def test_a_new_server_has_a_sandbox_and_one_that_exists_keeps_what_it_had(
    service: RegistryService,
):
    old = {"server_id": "old", "transport": "stdio", "stdio": {"command": "a"}}
    await service.import_records([("server", old)], "upsert", BY)
    far = {"url": "https://example.org/mcp"}
    local = {"command": "b", "args": ["--root=/srv/data", "/srv/more/", "/", "relative"]}
    found = read_client_config({"mcpServers": {"old": local, "new": local, "far": far}})
    await service.import_records(found.records, "upsert", BY, brings="connection")
    servers = service.view.snapshot().servers
    assert {name: (one.sharing, one.sandbox) for name, one in servers.items()} == {
        "old": ("shared", None),
        "new": ("task", Sandbox(level="best", network="full")),
        "far": ("task", None),
    }
    assert [one for one in found.warnings if one.startswith("new.args")] == [
        f"new.args: {place} is not granted by its sandbox; if the server works there, add it to "
        "sandbox.write"
        for place in ("/srv/data", "/srv/more")
    ]


def test_names_become_ids_and_stay_as_display_names():
    records = by_id(CLAUDE_DESKTOP)
    assert records["github-work"]["display_name"] == "GitHub (work)"
    assert records["filesystem"]["stdio"] == {
        "command": "npx",
        "args": ["-y", "server-files", "/data"],
    }


def test_remote_servers_keep_their_transport_and_their_references():
    records = by_id(CLAUDE_CODE)
    assert records["api"]["transport"] == "streamable_http"
    assert records["api"]["http"] == {
        "url": "${ENV:API_URL:-https://example.org}/mcp",
        "headers": {"Authorization": "Bearer ${ENV:API_KEY}"},
    }
    assert records["old"]["transport"] == "http_sse_legacy"
    assert by_id(CURSOR)["remote"]["transport"] == "streamable_http"


def test_a_clients_own_words_are_translated_and_said():
    notes = by_id(CURSOR)["notes"]
    assert notes["enabled"] is False
    assert notes["stdio"]["args"] == ["${ENV:WORKSPACE_FOLDER}/notes.py", "cost: $$$$5"]
    assert notes["stdio"]["env"] == {"KEY": "${ENV:NOTES_KEY}"}
    warnings = "\n".join(read_client_config(CURSOR).warnings)
    assert "notes.envFile: has no meaning here" in warnings
    assert "notes.args[0]: ${workspaceFolder} became ${ENV:WORKSPACE_FOLDER}" in warnings
    perplexity = by_id(VS_CODE)["perplexity"]["stdio"]
    assert perplexity["env"] == {"API_KEY": "${ENV:PERPLEXITY_KEY}"}
    assert perplexity["command"] == "${ENV:HOME}/bin/server"


def test_servers_of_one_project_alone_are_left_out_and_said():
    projects = {"/srv/a": {"mcpServers": {"own": {"command": "own"}}}, "/b": {"mcpServers": {}}}
    found = read_client_config({"mcpServers": {"all": {"command": "x"}}, "projects": projects})
    assert [record["server_id"] for _, record in found.records] == ["all"]
    assert found.warnings[0] == "projects./srv/a: the servers of this project were not imported"
    assert not any("/b" in warning for warning in found.warnings)


def test_a_plain_credential_is_pointed_out_without_being_repeated():
    warnings = [w for w in read_client_config(CLAUDE_DESKTOP).warnings if "credential" in w]
    assert len(warnings) == 1
    assert "GITHUB_TOKEN" in warnings[0]
    assert "abc" not in warnings[0]


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ({"a": 7}, "a: must be a table"),
        ({"a": {"type": "pigeon"}}, "a.type: 'pigeon'"),
        ({"a b": {"command": "x"}, "A-B": {"command": "y"}}, "would be server 'a-b'"),
        ({"a": {"command": "${config:x y}"}}, "a.command: '${config:x y}' has no meaning"),
    ],
)
def test_what_cannot_be_translated_is_refused(servers: dict[str, Any], said: str):
    with pytest.raises(InvalidRecord) as raised:
        read_client_config({"mcpServers": servers})
    assert any(said in problem for problem in raised.value.problems)


def test_another_file_is_not_taken_for_a_clients():
    for other in ({}, {"servers": []}, {"mcpServers": []}, {"server_id": "x"}):
        assert not is_client_config(other)
        with pytest.raises(InvalidRecord):
            read_client_config(other)


@pytest.mark.parametrize("name", ["x" * 80, "__", "9lives", "Ünïcode", "a__b", "-"])
async def test_every_name_becomes_a_valid_id(service: RegistryService, name: str):
    found = read_client_config({"mcpServers": {name: {"command": "x"}}})
    assert (await service.import_records(found.records, "upsert", BY)).revision == 1
