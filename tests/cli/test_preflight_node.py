"""``bascule preflight node``: what it finds of a token, its control plane and its rules."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bascule.cli.findings import Finding
from bascule.outbound.network_variables import OUTWARD
from tests.cli.served import process
from tests.flow.node_process import LINE, filled, node, notes

ALLOWED = ("--allow-executable", LINE)
#: Whatever this machine's own way to the network is.
WAY_OUT = [word for name in OUTWARD for word in ("--allow-variable", name)]


async def preflight(data: Path, *words: str, **env: str) -> tuple[int, dict[str, Finding]]:
    given = ("preflight", "node", "--data-dir", str(data), "--port", "0", *words, "--json")
    done = await asyncio.to_thread(process, *given, **env)
    assert done.out, done.err
    report = json.loads(done.out)
    found = {one["check"]: Finding(**one) for one in report["checks"]}
    assert report["ok"] == (done.code == 0)
    return done.code, found


def failed(found: dict[str, Finding]) -> dict[str, str]:
    """Return what failed, each with a way to mend it."""
    wrong = {name: one for name, one in found.items() if one.verdict == "failed"}
    assert all(one.mend for one in wrong.values())
    return {name: one.words for name, one in wrong.items()}


@pytest.mark.requirement("cli:preflight-node")
async def test_a_node_that_can_serve_is_told_so_and_left_as_it_was(tmp_path: Path):
    data = tmp_path / "node"
    async with filled(tmp_path / "plane") as (served, token, _):
        words = ("--registry", served.grpc, *ALLOWED, *WAY_OUT)
        code, found = await preflight(data, *words, BASCULE_TOKEN=token)
        assert (code, {one.verdict for one in found.values()}) == (0, {"ok"}), found
        assert "this is node 'east'" in found["control plane"].words
        assert "s apart from this machine" in found["clock there"].words
        assert found["assignment"].words == "all: 1 tasks and 1 servers"
        assert found["rules"].words == "all of 1 servers may be started or reached here"
        assert not data.exists()
        async with node(data, served.grpc, token):
            code, found = await preflight(data, *words, BASCULE_TOKEN=token)
            assert [*failed(found)] == ["other process"]
            code, found = await preflight(tmp_path / "b", *words, BASCULE_TOKEN=token)
            assert "another process follows as node 'east'" in failed(found)["control plane"]


@pytest.mark.requirement("cli:preflight-node")
async def test_rules_that_refuse_every_record_fail_and_those_that_refuse_some_warn(tmp_path: Path):
    async with filled(tmp_path / "plane") as (served, token, _):
        there = ("--registry", served.grpc)
        code, found = await preflight(tmp_path / "node", *there, BASCULE_TOKEN=token)
        assert code == 1
        assert "1 of 1 servers are refused here: notes: " in failed(found)["rules"]
        assert "--allow-executable" in str(found["rules"].mend)
        far = {"transport": "http", "http": {"url": "https://api.example.com/mcp"}}
        await served.put("servers", "far", {"server_id": "far", "allowed_tools": ["*"], **far})
        secret = notes(server_id="kept", env={"CITY": "secret://city"})
        await served.put("servers", "kept", secret)
        code, found = await preflight(tmp_path / "node", *there, *ALLOWED, BASCULE_TOKEN=token)
        assert (code, found["rules"].verdict) == (0, "warning")
        assert "1 of 3 servers are refused here: far: " in found["rules"].words
        assert "--allow-egress api.example.com" in found["rules"].words


@pytest.mark.requirement("cli:preflight-node")
async def test_certificates_and_proxies_that_servers_do_without_are_named(tmp_path: Path):
    async with filled(tmp_path / "plane") as (served, token, _):
        there = ("--registry", served.grpc, *ALLOWED)
        here = {"SSL_CERT_FILE": "/ca.pem", "no_proxy": "127.0.0.1"}
        code, found = await preflight(tmp_path / "node", *there, BASCULE_TOKEN=token, **here)
        assert (code, found["way out"].verdict) == (0, "warning")
        assert "--allow-variable SSL_CERT_FILE" in str(found["way out"].mend)
        async with node(tmp_path / "node", served.grpc, token, **here) as up:
            assert await up.end() == 0
            assert up.process.stderr is not None
            said = (await up.process.stderr.read()).decode()
        assert "servers are not given" in said
        assert "--allow-variable no_proxy" in said
        allowed = (*there, *WAY_OUT)
        _, found = await preflight(tmp_path / "node", *allowed, BASCULE_TOKEN=token, **here)
        assert found["way out"].verdict == "ok"


@pytest.mark.requirement("cli:preflight-node")
async def test_what_keeps_a_node_from_its_control_plane_is_named_with_a_way_to_mend_it(
    tmp_path: Path,
):
    data, file = tmp_path / "node", tmp_path / "token"
    async with filled(tmp_path / "plane") as (served, token, client):
        there = ("--registry", served.grpc, *ALLOWED)
        _, found = await preflight(data, *there)
        assert "a node needs a token" in failed(found)["token"]
        _, found = await preflight(data, *there, BASCULE_TOKEN="bsc_of-nobody")
        assert "refuses the token of this node" in failed(found)["token"]
        _, found = await preflight(data, *there, BASCULE_TOKEN=client)
        assert "role client does not allow" in failed(found)["token"]
        _, found = await preflight(data, *there, "--name", "west", BASCULE_TOKEN=token)
        assert "this is node 'east', and not 'west'" in failed(found)["control plane"]
        file.write_text(token, encoding="utf-8")
        file.chmod(0o644)
        code, found = await preflight(data, *there, "--token-file", str(file))
        assert (code, found["token"].verdict) == (0, "warning")
        assert found["token"].mend == f"chmod 600 {file}"
    _, found = await preflight(data, *there, BASCULE_TOKEN=token)
    assert "cannot be reached" in failed(found)["control plane"]
    far = ("--registry", "registry.example:7071")
    _, found = await preflight(data, *far, BASCULE_TOKEN=token)
    assert "without TLS on this machine only" in failed(found)["TLS"]
    _, found = await preflight(data, *far, "--ca", str(tmp_path / "none"), BASCULE_TOKEN=token)
    assert "No such file" in failed(found)["TLS"]
