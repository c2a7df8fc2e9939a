"""``bascule node status`` and ``accept``: what the owner of a node's data directory asks of it.

Where several processes serve as the node, each is asked.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import asdict

from bascule.cli.command import run_async, show, shown
from bascule.cli.configuration import read_settings
from bascule.cli.endpoint import Endpoint, owner_headers, proven_url
from bascule.cli.table import render_table
from bascule.client.http import ApiError, Unreachable
from bascule.model.json import JsonObject
from bascule.model.worker import WorkerStanding
from bascule.wire.api.addresses import NODE, NODE_ACCEPT, NODE_LEDGER
from bascule.wire.api.nodes import NodeStanding, ServerWords

NODE_PORT = 7072
#: What is otherwise than with a registry, which may be on the same machine.
NODE_SETTINGS: JsonObject = {"data_dir": "~/.local/share/bascule-node", "server.port": NODE_PORT}
_SERVE = "node serve --registry HOST:PORT"
_ASK_SECONDS = 15.0
_HEAD = ("SERVER", "STATE", "TOOLS", "ERROR")
#: How the node stands, and each of its workers that serves.
Standings: TypeAlias = tuple[NodeStanding, Mapping[int, NodeStanding]]


def status(arguments: argparse.Namespace) -> int:
    """Show how the node stands."""
    return _shown(arguments, run_async(_asked(arguments, "GET", NODE)))


def accept(arguments: argparse.Namespace) -> int:
    """Have the node take what its registry has, or its ledger go on as a new one."""
    path = NODE_LEDGER if arguments.ledger else NODE_ACCEPT
    return _shown(arguments, run_async(_asked(arguments, "POST", path)))


async def _asked(arguments: argparse.Namespace, method: str, path: str) -> Standings:
    settings = read_settings(arguments, usual=NODE_SETTINGS)
    url = await proven_url(settings, _SERVE)
    there = Endpoint(url, "", tls_ca=settings.server.tls_certificate, insecure=True)
    async with there.api() as api:
        headers = owner_headers(Path(settings.data_dir), url)

        async def ask(method: str, path: str, worker: int | None = None) -> NodeStanding:
            query = None if worker is None else {"worker": str(worker)}
            return await api.ask(
                NodeStanding, method, path, query=query, headers=headers, seconds=_ASK_SECONDS
            )

        found = await ask("GET", NODE)
        if not found.workers:
            return (found if method == "GET" else await ask(method, path)), {}
        serving = [one.number for one in found.workers if one.state == "serving"]
        workers: dict[int, NodeStanding] = {}
        for number in serving:  # one may have ended since
            with suppress(ApiError, Unreachable):
                workers[number] = await ask("GET", NODE, number)
        meant = [number for number, one in workers.items() if path != NODE_LEDGER or one.ledger]
        if method != "GET":  # where no worker's ledger is refused, the first says so
            workers |= {number: await ask(method, path, number) for number in meant or serving[:1]}
        return found, workers


def _shown(arguments: argparse.Namespace, standings: Standings) -> int:
    found, workers = standings
    if found.workers:
        return _shown_workers(arguments, found, workers)
    lines = [f"node {found.node}, of the control plane at {found.registry}", *_state(found)]
    rows = [_row(one) for one in found.servers]
    servers = render_table(_HEAD, rows, none="no servers")
    return show(arguments, found, *map(shown, lines), servers)


def _shown_workers(
    arguments: argparse.Namespace, found: NodeStanding, workers: Mapping[int, NodeStanding]
) -> int:
    name = found.node.rpartition("/")[0]
    lines = [f"node {name}, of the control plane at {found.registry}"]
    for one in found.workers:
        lines.append(_worker_line(one))
        if one.number in workers:
            lines += [f"- {line}" for line in _state(workers[one.number])]
        elif one.state == "serving":
            lines.append("- it does not answer now")
    rows = [
        [str(number), *_row(server)]
        for number, standing in workers.items()
        for server in standing.servers
    ]
    servers = render_table(["WORKER", *_HEAD], rows, none="no servers")
    each = [{**asdict(one), "standing": workers.get(one.number)} for one in found.workers]
    plain = {"node": name, "registry": found.registry, "workers": each}
    return show(arguments, plain, *map(shown, lines), servers)


def _worker_line(one: WorkerStanding) -> str:
    pid = "" if one.pid is None else f", process {one.pid}"
    again = f", started again {one.restarts} times" if one.restarts else ""
    why = "" if one.reason is None else f": {one.reason}"
    return f"worker {one.number} is {one.state}{pid}{again}{why}"


def _state(found: NodeStanding) -> list[str]:
    return [
        f"revision {found.revision} of store {found.store_id}",
        f"{found.state}, confirmed at {found.confirmed_at}",
        f"trusted until {found.trusted_until or 'told otherwise'}, if nothing more is heard",
        f"assigned: {found.assigned}",
        *([] if found.reason is None else [f"reason: {found.reason}"]),
        *([] if found.ledger is None else [f"ledger: {found.ledger}"]),
    ]


def _row(one: ServerWords) -> list[str]:
    count = "-" if one.tool_count is None else str(one.tool_count)
    return [shown(one.server_id), one.state, count, shown(one.last_error or "")]
