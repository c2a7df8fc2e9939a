"""A node that is known by its certificate too: the process, and the port it follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.control.rpc.test_port import served
from tests.flow.node_process import not_started, standing
from tests.flow.up_process import serving_by
from tests.waits import until


@pytest.mark.requirement("registry:grpc:node-certificate")
async def test_a_node_follows_with_the_certificate_of_its_name_and_no_other(tmp_path: Path):
    async with served(tmp_path, clients=True) as (counter, authority, _):
        own = authority.issue("own", "spiffe://bascule/node/node")
        there = ("--registry", f"127.0.0.1:{counter.port}", "--ca", authority.ca)
        token = {"BASCULE_TOKEN": counter.given["node"]}
        words = (*there, "--certificate", own)
        async with serving_by(("node", "serve"), tmp_path / "a", *words, **token) as up:
            assert (await standing(up)).node == "node"
            await until(lambda: [*counter.nodes.streams] == ["node"])
        other = authority.issue("other", "spiffe://bascule/node/other")
        said = await not_started(tmp_path / "b", *there, "--certificate", other, **token)
        assert "the certificate is of node 'other', and the token of 'node'" in said
        none = ("--wait", "0.1")
        said = await not_started(tmp_path / "c", *there, *none, **token)
        assert "the registry cannot be reached" in said


async def test_a_key_without_its_certificate_is_refused(tmp_path: Path):
    words = ("--registry", "127.0.0.1:1", "--key", "k.pem")
    said = await not_started(tmp_path, *words, BASCULE_TOKEN="bsc_x")
    assert "--key: is of no use without --certificate" in said
