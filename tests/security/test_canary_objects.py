"""What Python prints of the objects that hold a secret, and of errors raised where one is."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest

from bascule import Bridge, Server
from bascule.control.envelope import new_key, seal
from bascule.control.sealed_secrets import NewVersion
from bascule.control.secret_store import Head
from bascule.control.secrets import open_secrets
from bascule.errors import BasculeError
from bascule.loop.backend import UpstreamFailed
from bascule.loop.http_backend import HttpUpstream
from bascule.model.backend import BackendRecord
from bascule.model.secret_use import server_use
from bascule.node.pool.launch import Resolved
from bascule.node.pool.process.spawn import Launch
from bascule.outbound.credentials import Challenge, OAuthClient, TokenReply, bearer
from bascule.outbound.http import HttpClient, HttpOptions, HttpRequest, Proxy
from bascule.outbound.references import MappedSecrets, Reading
from bascule.outbound.rules import NodeRules
from bascule.outbound.url import Url
from bascule.testing import ScriptedServer, do
from bascule.testing.upstream import ScriptedUpstream
from bascule.wire.api.secrets import NewSecret
from tests.security.canaries import Search, canary_value

VALUE = canary_value()
SEARCH = Search(VALUE)
URL = Url.parse("http://127.0.0.1:9/mcp")
RECORD = Server.stdio("s", "/bin/true", env={"TOKEN": "secret://token"})


def shown(thing: object) -> bytes:
    """Return all that Python prints of an object, alone and in others."""
    texts = [repr(thing), str(thing), f"{thing}", pformat(thing), pformat({"a": [thing]})]
    try:
        raise ValueError(thing)
    except ValueError:
        texts.append(traceback.format_exc())
    return "\n".join(texts).encode()


def client() -> HttpClient:
    proxy = Proxy(URL, f"Basic {VALUE}")
    return HttpClient(HttpOptions(connect_seconds=1, egress=None, proxy=proxy))


HOLDERS: dict[str, Callable[[], object]] = {
    "NewSecret": lambda: NewSecret(value=VALUE),
    "NewVersion": lambda: NewVersion("token", 1, VALUE, "ada"),
    "Envelope": lambda: seal(new_key(), Head("s", 0, None).place("token", 1), VALUE),
    "MappedSecrets": lambda: MappedSecrets({"token": VALUE}),
    "Launch": lambda: Launch(("/bin/true",), {"TOKEN": VALUE}),
    "Resolved": lambda: Resolved(
        Launch(("/bin/true",), {"TOKEN": VALUE}), frozenset({VALUE}), frozenset({VALUE}), Path("x")
    ),
    "FixedHeaders": lambda: bearer(VALUE),
    "OAuthClient": lambda: OAuthClient("me", VALUE),
    "TokenReply": lambda: TokenReply(200, VALUE.encode()),
    "Challenge": lambda: Challenge(401, {"WWW-Authenticate": VALUE}),
    "HttpRequest": lambda: HttpRequest("POST", URL, {"Authorization": VALUE}, VALUE.encode()),
    "Proxy": lambda: Proxy(URL, f"Basic {VALUE}"),
    "HttpOptions": lambda: HttpOptions(connect_seconds=1, egress=None, proxy=Proxy(URL, VALUE)),
    "HttpClient": client,
    "RequestHead": lambda: client().head("POST", URL, {"Authorization": "Bearer x", "X": "y"}),
}


@pytest.mark.parametrize("name", HOLDERS)
async def test_nothing_that_holds_a_secret_prints_it(name: str):
    held = HOLDERS[name]()
    assert SEARCH(shown(held)) == set()
    assert type(held).__name__ in repr(held)


async def test_a_request_that_is_ready_to_go_does_not_print_its_credential():
    head = client().head("POST", URL, {"X-Key": VALUE})
    assert SEARCH(head.text) != set()
    assert SEARCH(shown(head)) == set()


async def test_what_reads_references_prints_nothing_of_what_it_read():
    secrets = MappedSecrets({"token": VALUE})
    reading = Reading(NodeRules(), {}, secrets, server_use(RECORD))
    assert await reading.value("secret://token", "stdio.env.TOKEN") == VALUE
    assert SEARCH(shown(reading)) == set()


@pytest.fixture
async def used(tmp_path: Path) -> AsyncIterator[tuple[Bridge, HttpUpstream]]:
    """A bridge and a backend that hold a secret now."""
    script = ScriptedServer(behaviours={"echo": "echo", "died": do("die")})
    record = Server.stdio("s", *_line(script), env={"TOKEN": "secret://token"})
    async with ScriptedUpstream() as model:
        backend = BackendRecord(name="b", base_url=model.url, key_ref="secret://token")
        secrets = MappedSecrets({"token": VALUE})
        upstream = HttpUpstream(backend, rules=NodeRules(), secrets=secrets)
        async with Bridge.open([record], secrets={"token": VALUE}) as bridge:
            await bridge.inspect("s")
            await upstream.models()
            yield bridge, upstream
        await upstream.close()


def _line(script: ScriptedServer) -> tuple[str, ...]:
    command, args = script.command
    return (command, *args)


def _reached(thing: object, seen: dict[int, object], depth: int = 12) -> None:
    """Gather our own objects that an object leads to."""
    if id(thing) in seen or depth == 0:
        return
    if isinstance(thing, dict):
        inner: list[Any] = list(thing.values())
    elif isinstance(thing, (list, tuple, set, frozenset)):
        inner = list(thing)
    elif type(thing).__module__.startswith("bascule."):
        seen[id(thing)] = thing
        names = [n for c in type(thing).__mro__ for n in getattr(c, "__slots__", ())]
        own = [*vars(thing)] if hasattr(thing, "__dict__") else []
        names += [*own, *getattr(type(thing), "__struct_fields__", ())]
        inner = [getattr(thing, name, None) for name in names]
    else:
        return
    for one in inner:
        _reached(one, seen, depth - 1)


async def test_no_object_of_a_bridge_or_a_backend_in_use_prints_its_secret(
    used: tuple[Bridge, HttpUpstream],
):
    seen: dict[int, object] = {}
    _reached(used, seen)
    kinds = {type(one).__name__ for one in seen.values()}
    assert {"Bridge", "Connection", "Opener", "HttpUpstream", "HttpClient", "_Route"} <= kinds
    loud = {type(one).__name__ for one in seen.values() if SEARCH(shown(one))}
    assert loud == set()


async def test_no_traceback_of_a_failure_has_the_secret(used: tuple[Bridge, HttpUpstream]):
    bridge, upstream = used
    texts: list[str] = []
    async with bridge.session(server_ids=["s"]) as session:
        texts.append(repr(await session.call("mcp__s__died", {})))
    try:
        await upstream.complete({"model": "m", "messages": object()}, seconds=1)  # type: ignore[dict-item]
    except (UpstreamFailed, BasculeError, TypeError):
        texts.append(traceback.format_exc())
    assert len(texts) == 2
    assert SEARCH("".join(texts).encode()) == set()


# --- reading one's own secret


READ = """
import asyncio, sys, threading
from bascule.control.secrets import Secrets
secrets = Secrets.open(sys.argv[1])
found = [secrets.get("token")]

async def running():
    found.append(secrets.get("token"))

asyncio.run(running())
thread = threading.Thread(target=lambda: found.append(secrets.get("token")))
thread.start()
thread.join()
print(repr(secrets))
sys.exit(0 if found == [sys.stdin.read()] * 3 else 1)
"""


async def test_the_owner_reads_it_in_a_program_in_an_event_loop_and_in_a_thread(tmp_path: Path):
    async with open_secrets(tmp_path) as secrets:
        await secrets.set("token", VALUE, by="ada")
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", READ, str(tmp_path)],
        input=VALUE,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert SEARCH((done.stdout + done.stderr).encode()) == set()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        bodies = [json.loads(body) for (body,) in ledger.execute("SELECT body FROM events")]
    acts = [(body["action"], body["name"], body["by"]) for body in bodies]
    assert acts == [("set", "token", "ada"), *[("read", "token", "owner")] * 3]
