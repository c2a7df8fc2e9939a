"""What the manifests start serves on PostgreSQL, and their probes find it well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.deploy.manifests import configuration, container, expanded
from tests.flow.up_process import Up
from tests.outbound.authority import Authority
from tests.postgres.replicas import replicas

#: An address of this machine that is no name of a process unless it is told.
POD = {"POD_IP": "127.0.0.2", "POD_NAMESPACE": "prod"}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Up]:
    authority = Authority(tmp_path)
    pem = authority.issue("tls", POD["POD_IP"])
    text = configuration()
    for file in ("tls.crt", "tls.key"):
        assert file in text
        text = text.replace(f"/etc/bascule/tls/{file}", pem)
    file = tmp_path / "bascule.toml"
    file.write_text(text, encoding="utf-8")
    [*command, config] = container()["args"]
    assert config.startswith("--config=")
    words = ("--config", str(file), "--grpc-port", "0")
    hosts = expanded("BASCULE_HOSTS", POD)
    async with replicas(tmp_path) as made:
        yield await made.start("pod", *words, command=tuple(command), BASCULE_HOSTS=hosts)


async def asked(up: Up, path: str, **headers: str) -> tuple[int, str]:
    """Ask at the address of the pod; as a probe does, without a look at the certificate."""
    port = urlsplit(up.url).port
    url = f"https://{POD['POD_IP']}:{port}{path}"
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers, ssl=False) as answer:
        return answer.status, await answer.text()


@pytest.mark.requirement("observability:probes", "observability:revision")
async def test_the_probes_find_it_well_and_figures_are_collected_from_the_pod(served: Up):
    for probe in PROBES:
        look = container()[probe]["httpGet"]
        headers = {one["name"]: one["value"] for one in look["httpHeaders"]}
        status, said = await asked(served, look["path"], **headers)
        assert status == 200, said
    status, said = await asked(served, "/metrics", Authorization=f"Bearer {served.admin}")
    assert status == 200
    assert "\nmcp_registry_revision " in said
    status, said = await asked(served, "/readyz", Host="elsewhere.example")
    assert status != 200, said
    assert (await served.next_lines(1))[0].startswith("The registry answers over gRPC at ")
    assert await served.end() == 0
