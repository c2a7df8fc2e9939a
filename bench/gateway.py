"""The gateway: what an MCP call costs at ``/mcp`` more than at its server, and beside its peers.

Alternating rounds (``rounds``) of one bare client before the floor server itself, before
``bascule up`` in front of it, in both generations, and before other gateways in front of it; each
with its servers on one core. Then the ledger on disk beside the one in memory, and what is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import median

import uvloop

from bench import peer_servers
from bench.gateway_clients import GENERATIONS
from bench.gateway_holding import lists, sessions, streams
from bench.peer_servers import STATEFUL
from bench.rounds import Rounds, Setting, absolute, alternate
from bench.serving import AT_ONCE
from bench.table import Row, at_least, at_most

NAME = "gateway"
QUIET = "on a quiet core"
#: How many times as much a peer adds at least, in the legacy generation, which all of them speak.
TIMES = {"mcp-proxy": 3, STATEFUL: 3, "fastmcp": 8}
#: A client at the gateway, and the one that does the same without.
DIRECT = {
    **{f"stdio {name}": "pipe" for name in GENERATIONS},
    **{f"http {name}": f"wire {name}" for name in GENERATIONS},
}
CALLS = Setting(
    title="a call",
    module="bench.gateway_clients",
    clients=(
        *dict.fromkeys(DIRECT.values()),
        *DIRECT,
        "initialize",
        *TIMES,
    ),
    server="",
    rounds=10,
    turns=100,
    crowd=256,
)
KEPT = tuple(f"stdio {name}" for name in GENERATIONS)
#: Long enough that the database follows within each.
LEDGERS = replace(
    CALLS,
    clients=tuple(f"{name}{where}" for name in ("api", *KEPT) for where in ("", ", on disk")),
    rounds=6,
    turns=1_000,
    crowd=AT_ONCE,
)
#: As it comes, this peer starts the server anew for each request: a few of them will do.
ANEW = replace(
    CALLS, clients=("pipe", "stdio legacy", "supergateway"), rounds=3, turns=10, crowd=AT_ONCE
)


def run() -> list[Row]:
    """Measure calls beside the peers, then what is held."""
    peer_servers.install()
    rounds = alternate(CALLS)
    return [
        *added(rounds),
        *on_disk(alternate(LEDGERS)),
        *others(rounds),
        *(row for peer, times in TIMES.items() for row in beside(rounds, peer, times)),
        *beside(alternate(ANEW), "supergateway", 3),
        *uvloop.run(lists()),
        *uvloop.run(streams()),
        *uvloop.run(sessions()),
        *absolute(CALLS, rounds),
    ]


def added(rounds: Rounds) -> Iterator[Row]:
    """What the gateway adds to a call, and how many it takes at once."""
    for client, direct in DIRECT.items():
        more = rounds.difference("p50", client, direct) / 1e3
        yield at_most(f"added behind {client}, p50", more, "ms", 0.3, QUIET)
        fastest = rounds.difference("min", client, direct) / 1e3
        yield Row("the same, by the fastest calls", fastest, "ms")
    for client in DIRECT:
        each = rounds.typical("crowd", "each", client)
        name = f"behind {client}, {AT_ONCE} in flight"
        yield at_least(name, 1e6 / each, "calls/s", 3_000, QUIET)
        fastest = min(seen["each"] for seen in rounds.crowd[client])
        yield Row("the same, by the fastest round", 1e6 / fastest, "calls/s")


def on_disk(rounds: Rounds) -> Iterator[Row]:
    """What the ledger on disk adds at the gateway, beside what it adds at the tools API."""
    for figure, words, judge in (
        ("p50", "p50", partial(at_most, goal=1.2, where=QUIET)),
        ("min", "by the fastest calls", Row),
    ):
        itself = rounds.difference(figure, "api, on disk", "api")
        yield Row(f"the ledger on disk adds at the tools API, {words}", itself, "us")
        for client in KEPT:
            more = rounds.difference(figure, f"{client}, on disk", client)
            name = f"the ledger on disk adds behind {client}, of that, {words}"
            yield judge(name, more / itself, "x")


def others(rounds: Rounds) -> Iterator[Row]:
    opening = rounds.typical("turns", "p50", "initialize") / 1e3
    yield at_most("initialize, p50", opening, "ms", 0.3, QUIET)


def beside(rounds: Rounds, peer: str, times: float) -> Iterator[Row]:
    """How many times as much a peer adds, round by round."""
    compared = partial(times_added, rounds, peer, "stdio legacy", "pipe")
    yield at_least(f"added p50, {peer} / Bascule", compared("p50"), "x", times)
    yield Row("the same, by the fastest calls", compared("min"), "x")


def times_added(rounds: Rounds, peer: str, ours: str, direct: str, figure: str) -> float:
    """Compare what two clients take more than a third one."""
    figures = (rounds.turns[name] for name in (peer, ours, direct))
    return median(
        (one[figure] - floor[figure]) / (other[figure] - floor[figure])
        for one, other, floor in zip(*figures, strict=True)
    )
