"""A call by the tools API, and what stands beside it, each in a process of its own.

``python -m bench.api_clients CLIENT LOOP PLACE CORE``; see ``serving``. The client is bare
(``caller``) before every server. ``PLACE`` is a URL and a token, or empty: a server of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.caller import callers, connected
from bench.fixed_servers import KINDS
from bench.http_clients import running
from bench.serving import ARGUMENTS, AT_ONCE, TEXT, Call, main, watch
from bench.site import CALL, CALL_PATH, TOOL, door, make_site, node_served

IDENTITY_PATH = "/api/v1/identity"


@asynccontextmanager
async def session(place: str) -> AsyncGenerator[Call]:
    """``session.call`` in this process, over the same stdio server."""
    from bascule import Bridge

    del place
    with TemporaryDirectory() as folder:
        site = await make_site(Path(folder))
        bridge = Bridge.open(site.records)
        async with bridge, bridge.session(server_ids=["floor"]) as session:

            async def call() -> str:
                return (await session.call(TOOL, ARGUMENTS)).text

            yield call


@asynccontextmanager
async def bascule(place: str, *options: str) -> AsyncGenerator[Call]:
    """``POST /api/v1/tools/call``, of a process with these options."""
    async with (
        door(place, *options) as (url, token),
        connected(callers(AT_ONCE, url, token)) as free,
    ):

        async def call() -> str:
            caller = free.pop()
            answer = await caller.post(CALL_PATH, CALL)
            free.append(caller)
            return answer["text"]

        yield call


@asynccontextmanager
async def identity(place: str) -> AsyncGenerator[Call]:
    """A route that does next to nothing, behind our guard: whose token this is."""
    async with door(place) as (url, token), connected(callers(AT_ONCE, url, token)) as free:

        async def call() -> str:
            caller = free.pop()
            answer = await caller.send("GET", IDENTITY_PATH)
            free.append(caller)
            assert answer["role"] == "client"
            return TEXT

        yield call


@asynccontextmanager
async def fixed(place: str, kind: str) -> AsyncGenerator[Call]:
    """The same request to a server that gives one fixed answer."""
    del place
    with running("-m", "bench.fixed_servers", kind) as (url, pid):
        watch(pid)
        async with connected(callers(AT_ONCE, url)) as free:

            async def call() -> str:
                caller = free.pop()
                answer = await caller.post(CALL_PATH, CALL)
                free.append(caller)
                return answer["text"]

            yield call


@asynccontextmanager
async def split(place: str) -> AsyncGenerator[Call]:
    """The same of a node that is a process of its own, beside its control plane."""
    del place
    with TemporaryDirectory() as name:
        site = await make_site(Path(name))
        async with node_served(site) as (url, pid):
            watch(pid)
            async with bascule(f"{url} {site.client}") as call:
                yield call


CLIENTS = {
    "session": session,
    "bascule": bascule,
    "split": split,
    "our guard": identity,
    **{kind: partial(fixed, kind=kind) for kind in KINDS},
}

if __name__ == "__main__":
    main(CLIENTS)
