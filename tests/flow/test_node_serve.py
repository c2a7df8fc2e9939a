"""``bascule node serve``: a node beside its control plane, and without it; real processes."""

from __future__ import annotations

import stat
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bascule.clock import seconds_of
from bascule.node.sync.last_known_good import FILE_NAME
from tests.flow.node_process import (
    LINE,
    Plane,
    filled,
    lists_notes,
    node,
    not_started,
    notes,
    plane,
    standing,
    until_state,
)
from tests.flow.up_process import Up, record, run, serving_by
from tests.waits import until


def port_of(address: str) -> str:
    return address.rpartition(":")[2]


async def seen_at(served: Plane) -> list[tuple[str, str]]:
    """Return the nodes that a control plane knows, and their states."""
    nodes = (await served.up.get("/admin/api/nodes"))["nodes"]
    return [(one["name"], one["state"]) for one in nodes]


# --- with its control plane


@pytest.mark.requirement("cli:node-serve")
@pytest.mark.requirement("registry:split")
async def test_a_client_of_the_control_plane_calls_a_tool_at_the_node(tmp_path: Path):
    async with (
        filled(tmp_path / "plane") as (served, token, client),
        node(tmp_path / "node", served.grpc, token, "--name", "east") as up,
    ):
        assert up.url != served.up.url
        assert await lists_notes(up, client)
        assert (await served.up.call(client, "notes/list_notes"))[0] == 404
        status, answer = await up.ask("GET", "/admin/api/mcp/servers", token=client)
        assert (status, answer["error"]["code"]) == (404, "not_found")
        assert (await up.ask("GET", "/healthz"))[1]["status"] == "ok"
        assert (await up.ask("GET", "/readyz"))[0] == 200
        assert (await up.ask("GET", "/v1/models", token=client))[0] == 200
        seen = await standing(up)
        assert (seen.node, seen.state, seen.reason) == ("east", "ok", None)
        assert [(one.server_id, one.state) for one in seen.servers] == [("notes", "connected")]
        await until(lambda: _knows(served, ("east", "ok")))
        assert await up.end() == 0
        await until(lambda: _knows(served, None))


async def _knows(served: Plane, found: tuple[str, str] | None) -> bool:
    return await seen_at(served) == ([] if found is None else [found])


@pytest.mark.requirement("registry:split")
async def test_changes_of_records_and_tokens_arrive_at_the_node(tmp_path: Path):
    async with (
        filled(tmp_path / "plane") as (served, token, client),
        node(tmp_path / "node", served.grpc, token) as up,
    ):
        other, other_id = await served.token("client", "--task", "t")
        assert await _is_taken(up, other), "at once, though the node has not heard of it yet"
        await served.put("servers", "notes", notes(allowed_tools=["read_*"]))

        async def is_denied() -> bool:
            _, outcome = await up.call(client, "notes/list_notes")
            return outcome["error"]["code"] == "mcp_policy_denied" if not outcome["ok"] else False

        await until(is_denied)
        code, _, err = await run("tokens", "revoke", other_id, "--data-dir", str(served.up.data))
        assert code == 0, err

        async def is_refused() -> bool:
            return (await up.ask("GET", "/api/v1/identity", token=other))[0] == 401

        await until(is_refused)
        assert await _is_taken(up, client)


async def _is_taken(up: Up, token: str) -> bool:
    return (await up.ask("GET", "/api/v1/identity", token=token))[0] == 200


# --- what records may do at a node


@pytest.mark.requirement("references:allowed-variables:node")
async def test_a_record_reads_and_starts_nothing_that_the_node_does_not_allow(tmp_path: Path):
    async with filled(tmp_path / "plane") as (served, token, client):
        await served.put("servers", "notes", notes(env={"CITY": "${HOME_TOWN}"}))
        closed = ("node", served.grpc, token)
        async with node(tmp_path / closed[0], *closed[1:], HOME_TOWN="Tower Hill") as up:
            _, outcome = await up.call(client, "notes/list_notes")
            said = outcome["error"]["message"]
            assert 'add "HOME_TOWN" to [node] variables, or to BASCULE_NODE_VARIABLES' in said
            assert await up.end() == 0
        allowed = ("--allow-variable", "HOME_TOWN")
        async with node(tmp_path / "node", *closed[1:], *allowed, HOME_TOWN="Tower Hill") as up:
            assert await lists_notes(up, client)


@pytest.mark.requirement("references:closed-egress")
@pytest.mark.requirement("references:allowed-variables:node")
async def test_a_node_without_options_closes_every_list_and_names_what_to_add(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret", encoding="utf-8")
    far = {"transport": "http", "http": {"url": "https://api.example.com/mcp"}}
    records = {
        "variable": notes(server_id="variable", env={"CITY": "${HOME_TOWN}"}),
        "file": notes(server_id="file", env={"CITY": f"file://{secret}"}),
        "far": {"server_id": "far", "allowed_tools": ["*"], **far},
    }
    wanted = {
        "variable": 'add "HOME_TOWN" to [node] variables',
        "file": f'add "{secret}" to [node] files',
        "far": 'add "api.example.com" to [node] egress, or start with --allow-egress',
    }
    async with filled(tmp_path / "plane") as (served, token, client):
        for id, plain in records.items():
            await served.put("servers", id, plain)
        mcp = {"enabled": True, "default_server_ids": [*records]}
        await served.put("tasks", "t", {"task_id": "t", "mcp": mcp})
        async with node(tmp_path / "node", served.grpc, token, HOME_TOWN="Tower Hill") as up:
            for id, words in wanted.items():
                _, outcome = await up.call(client, f"{id}/list_notes")
                assert words in outcome["error"]["message"]


async def test_a_program_that_is_not_allowed_is_named_with_the_setting_to_add(tmp_path: Path):
    async with filled(tmp_path / "plane") as (served, token, client):
        closed = serving_by(
            ("node", "serve"), tmp_path / "node", "--registry", served.grpc, BASCULE_TOKEN=token
        )
        async with closed as up:
            _, outcome = await up.call(client, "notes/list_notes")
            assert (
                "to [node] executables, or to BASCULE_NODE_EXECUTABLES"
                in (outcome["error"]["message"])
            )


@pytest.mark.requirement("loading:nodes-read-no-files")
async def test_a_node_reads_no_records_from_files(tmp_path: Path):
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "own.toml").write_text(record("own"), encoding="utf-8")
    (folder / "notes.toml").write_text("not even a record", encoding="utf-8")
    async with filled(tmp_path / "plane") as (served, token, client):
        files = {"BASCULE_REGISTRY_DIR": str(folder)}
        async with node(tmp_path / "node", served.grpc, token, **files) as up:
            assert await lists_notes(up, client)
            assert [one.server_id for one in (await standing(up)).servers] == ["notes"]
            assert await up.end() == 0
            assert up.process.stderr is not None
            said = (await up.process.stderr.read()).decode()
            assert "mcp.registry_dir: a node has the records of its control plane" in said


# --- without its control plane


@pytest.mark.requirement("cli:node-serve")
async def test_calls_go_on_while_the_control_plane_is_away(tmp_path: Path):
    async with AsyncExitStack() as stack:
        served, token, client = await stack.enter_async_context(filled(tmp_path / "plane"))
        viewer, _ = await served.token("viewer")
        up = await stack.enter_async_context(node(tmp_path / "node", served.grpc, token))
        assert await lists_notes(up, client)
        served.up.process.kill()
        await served.up.process.wait()
        away = await until_state(up, "degraded")
        assert "the registry cannot be reached" in str(away.reason)
        assert away.confirmed_at is not None
        assert away.trusted_until is not None
        assert seconds_of(away.trusted_until) - seconds_of(away.confirmed_at) == 24 * 3600
        assert await lists_notes(up, client)
        _, health = await up.ask("GET", "/healthz")
        assert (health["status"], [*health["reasons"]]) == ("degraded", ["not_following"])
        assert served.grpc not in str(health), "where the control plane is, is not for everybody"
        assert (await up.ask("GET", "/readyz"))[0] == 200
        assert 'mcp_degraded{reason="not_following"} 1' in await figures(up, viewer)
        back = plane(served.up.data, "--grpc-port", port_of(served.grpc))
        again = await stack.enter_async_context(back)
        await until_state(up, "ok")
        await until(lambda: _knows(again, ("east", "ok")))


async def figures(up: Up, token: str) -> str:
    headers = {"Authorization": f"Bearer {token}"}
    async with up.http.get(f"{up.url}/metrics", headers=headers) as answer:
        assert answer.status == 200
        return await answer.text()


@pytest.mark.requirement("sync:persisted")
async def test_a_node_starts_from_what_it_kept_while_the_control_plane_is_away(tmp_path: Path):
    data = tmp_path / "node"
    async with (
        filled(tmp_path / "plane") as (served, token, client),
        node(data, served.grpc, token) as up,
    ):
        before = await standing(up)
        assert await up.end() == 0
    assert stat.S_IMODE((data / FILE_NAME).stat().st_mode) == 0o600
    async with node(data, served.grpc, token) as up:
        said = (await up.next_lines(2))[1]
        assert "which is not followed: it serves what it knew at revision" in said
        found = await standing(up)
        assert (found.state, found.revision) == ("degraded", before.revision)
        assert (await up.ask("GET", "/healthz"))[1]["status"] == "degraded"
        assert await lists_notes(up, client)


async def test_another_registry_is_doubted_until_the_owner_accepts_it(tmp_path: Path):
    async with (
        filled(tmp_path / "plane") as (served, token, client),
        node(tmp_path / "node", served.grpc, token) as up,
    ):
        assert await served.up.end() == 0
        for file in served.up.data.glob("registry.db*"):
            file.unlink()
        words = ("--new-registry", "--grpc-port", port_of(served.grpc))
        async with plane(served.up.data, *words) as emptied:

            async def doubt() -> str | None:
                reason = str((await standing(up)).reason)
                return reason if "bascule node accept" in reason else None

            assert "is another store" in str(await until(doubt))
            assert await lists_notes(up, client)
            taken = await standing(up, "accept")
            assert taken.revision == (await emptied.up.get("/healthz"))["revision"]
            assert taken.servers == ()
            await until_state(up, "ok")
            assert not await lists_notes(up, client)


# --- starts that fail


async def test_a_node_that_cannot_start_says_why(tmp_path: Path):
    data = tmp_path / "node"
    async with filled(tmp_path / "plane") as (served, token, client):
        there = ("--registry", served.grpc)
        said = await not_started(data, *there, BASCULE_TOKEN="bsc_of-nobody")
        assert "the registry refuses the token of this node" in said
        said = await not_started(data, *there, BASCULE_TOKEN=client)
        assert "role client does not allow registry:read_secrets" in said
        said = await not_started(data, *there, "--name", "west", BASCULE_TOKEN=token)
        assert "--name: this is node 'east' and not 'west', by its token" in said
        said = await not_started(served.up.data.parent / "other", *there)
        assert "a node needs a token: set BASCULE_TOKEN, or give --token-file" in said
        async with node(data, served.grpc, token):
            second = ("--wait", "0.1", *there)
            said = await not_started(tmp_path / "second", *second, BASCULE_TOKEN=token)
            assert "another process follows as node 'east'" in said
        assert await served.up.end() == 0
        said = await not_started(served.up.data, *there, BASCULE_TOKEN=token)
        assert "is the data directory of a registry, and a node needs one of its own" in said
        unknown = tmp_path / "unknown"
        said = await not_started(unknown, *there, "--wait", "0.1", BASCULE_TOKEN=token)
        assert "the registry cannot be reached" in said


async def test_a_control_plane_elsewhere_is_not_reached_without_tls(tmp_path: Path):
    there = ("--registry", "registry.example:7071")
    said = await not_started(tmp_path, *there, BASCULE_TOKEN="bsc_x")
    assert "is reached without TLS on this machine only" in said
    said = await not_started(tmp_path, "--registry", "https://registry.example", BASCULE_TOKEN="x")
    assert "is not HOST:PORT" in said


async def test_a_token_may_stand_in_a_file_and_on_no_command_line(tmp_path: Path):
    async with filled(tmp_path / "plane") as (served, token, client):
        file = tmp_path / "token"
        file.write_text(f"{token}\n", encoding="utf-8")
        words = ("--registry", served.grpc, "--token-file", str(file), "--allow-executable", LINE)
        async with serving_by(("node", "serve"), tmp_path / "node", *words) as up:
            assert await lists_notes(up, client)
    code, _, err = await run("node", "status", "--data-dir", str(tmp_path / "node"))
    assert (code, "bascule node serve --registry HOST:PORT" in err) == (1, True)
