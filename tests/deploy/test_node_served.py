"""What the manifests of nodes start follows a control plane with TLS, and their probes find it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.deploy.manifests import NODE, configuration, container, expanded, filled_in
from tests.deploy.test_served import PROBES, asked
from tests.flow.node_process import plane
from tests.flow.up_process import Up, serving_by
from tests.outbound.authority import Authority

#: An address of this machine that is no name of a process unless it is told.
POD = {"POD_IP": "127.0.0.2", "POD_NAMESPACE": "prod", "POD_NAME": "bascule-node-0"}


def command(folder: Path, registry: str, ca: str) -> tuple[list[str], list[str]]:
    """Return the command of a pod, and its options with files that are here."""
    places = {
        "registry": registry,
        "ca": ca,
        "token-file": str(folder / "token"),
        "config": str(folder / "bascule.toml"),
    }
    words = [filled_in(one, POD) for one in container(NODE)["args"]]
    options = dict(one.removeprefix("--").split("=") for one in words if one.startswith("--"))
    assert {*places} < {*options}
    return (
        [one for one in words if not one.startswith("--")],
        [f"--{name}={value}" for name, value in {**options, **places}.items()],
    )


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Up]:
    authority = Authority(tmp_path)
    pem = authority.issue("tls", "127.0.0.1", POD["POD_IP"])
    text = configuration("node-configmap")
    for file in ("tls.crt", "tls.key"):
        assert file in text
        text = text.replace(f"/etc/bascule/tls/{file}", pem)
    (tmp_path / "bascule.toml").write_text(text, encoding="utf-8")
    tls = ("--tls-certificate", pem, "--tls-key", pem)
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(plane(tmp_path / "plane", *tls))
        token, _ = await there.token("node", "--name", POD["POD_NAME"])
        (tmp_path / "token").write_text(token, encoding="utf-8")
        words, options = command(tmp_path, there.grpc, authority.ca)
        hosts = expanded("BASCULE_HOSTS", POD, NODE)
        starting = serving_by(tuple(words), tmp_path / "data", *options, BASCULE_HOSTS=hosts)
        yield await stack.enter_async_context(starting)


@pytest.mark.requirement("observability:node-manifests", "observability:probes")
async def test_a_node_of_the_manifests_follows_and_its_probes_find_it_well(served: Up):
    said = (await served.next_lines(2))[1]
    assert said.startswith(f"It is node {POD['POD_NAME']} of 127.0.0.1:"), said
    for probe in PROBES:
        look = container(NODE)[probe]["httpGet"]
        headers = {one["name"]: one["value"] for one in look["httpHeaders"]}
        status, found = await asked(served, look["path"], **headers)
        assert status == 200, found
    status, found = await asked(served, "/readyz", Host="elsewhere.example")
    assert status != 200, found
    assert await served.end() == 0
