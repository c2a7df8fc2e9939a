"""What HTTP costs on one core by the library that speaks it: clients, then servers.

Clients send one MCP call to the floor server and read the answer; servers get one small POST from
the bare client. The figures behind the choice of our own client and of uvicorn (docs/adr).
"""

from __future__ import annotations

from bench.rounds import Ratio, Setting, rows
from bench.table import Row

NAME = "wire"
CLIENTS = ("httptools", "aiohttp", "pyreqwest")
SERVERS = ("own protocol", "uvicorn", "starlette", "our guard")


def run() -> list[Row]:
    """Measure both ends, each beside the least there can be."""
    clients = Setting(
        title="client",
        module="bench.http_clients",
        clients=CLIENTS,
        ratios=_over("p50", CLIENTS, "httptools"),
        crowd=320,
    )
    servers = Setting(
        title="server",
        module="bench.api_clients",
        server="",
        clients=SERVERS,
        ratios=(*_over("p50", SERVERS, "uvicorn"), *_over("server_cpu", SERVERS, "uvicorn")),
        crowd=320,
    )
    return [*rows(clients), *rows(servers)]


def _over(figure: str, names: tuple[str, ...], below: str) -> tuple[Ratio, ...]:
    shown = figure.replace("_", " ").replace("cpu", "CPU")
    return tuple(
        Ratio(f"{shown}, {name} / {below}", figure, name, below) for name in names if name != below
    )
