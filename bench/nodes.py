"""Nodes: what thousands that are quiet cost their replica, a split node's rate, and a storm.

The server has one core and the clients another one. Quiet nodes are streams that hear bookmarks,
and report in the rhythm of real ones. What each thing costs goes into a model of a fleet
(``fleet_model``), which is compared with real followers that lose their registry for a while.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bascule.clock import SYSTEM_CLOCK
from bench import fleet_model
from bench.fleet_model import BOOKMARK_SECONDS, Costs
from bench.machine import on_cores, one_core
from bench.node_clients import FIRST, PARTS, QUIET_SECONDS, Place
from bench.processes import ended, line, started
from bench.rounds import Figures, Ratio, Setting, rows
from bench.site import Site, free_port, make_site, token_store
from bench.table import Row, at_least, at_most
from tests.outbound.authority import Authority

NAME = "nodes"
NODES = 10_000
#: Nodes that join on connections of their own.
JOINING = 1_200
#: The measured storm: real followers, and how long their registry is away.
FOLLOWERS = 500
AWAY_SECONDS = 20.0
MINTED_AT_ONCE = 500
END_SECONDS = 900.0
READY = b"The registry answers over gRPC at "
RATE = Ratio("calls per second at 64, a split node / up", "each", "bascule", "split", "crowd")
SPLIT = Setting(
    title="split",
    module="bench.api_clients",
    clients=("bascule", "split"),
    ratios=(
        RATE,
        Ratio("CPU of a call at 64, up / a split node", "family_cpu", "bascule", "split", "crowd"),
    ),
    goals={RATE.name: partial(at_least, goal=0.9)},
    server="",
    crowd=640,
)


def run() -> list[Row]:
    """Measure nodes, and let the model say what cannot be measured here."""
    split = rows(SPLIT)
    quiet = asyncio.run(_at(NODES, _measured))
    costs = Costs(
        opening=quiet["opening"],
        poll=quiet["poll"],
        report=quiet["report"],
        bookmark=quiet["silent"] * BOOKMARK_SECONDS / NODES,
    )
    plain = asyncio.run(_at(JOINING, _joined))["joining"]
    with_tls = asyncio.run(_at(JOINING, partial(_joined, tls=True)))["joining"]
    storm = asyncio.run(_at(FOLLOWERS, _stormed))
    return [
        *split,
        *_quiet_rows(quiet, costs),
        Row("CPU of the replica: a stream on a connection of its own", plain * 1e6, "us"),
        Row("CPU of the replica: the same with TLS", with_tls * 1e6, "us"),
        *_checked(storm, replace(costs, opening=plain, trying=storm["trying"])),
        *_modelled(replace(costs, opening=with_tls)),
    ]


# --- measuring


class Control:
    """A control plane in a data directory, which may be started again at its address."""

    def __init__(self, site: Site, tokens: list[str]) -> None:
        self._site = site
        self._port = free_port()
        self._tls: tuple[str, ...] = ()
        self._ca = ""
        self.tokens = tokens

    def with_tls(self) -> None:
        """Serve with a certificate."""
        authority = Authority(self._site.records.parent)
        pem = authority.issue("tls", "127.0.0.1")
        self._tls, self._ca = ("--tls-certificate", pem, "--tls-key", pem), authority.ca

    @asynccontextmanager
    async def served(self) -> AsyncGenerator[int]:
        """Serve; the process."""
        data = ("--data-dir", str(self._site.data), "--log-level", "warning")
        ports = ("--port", "0", "--grpc-port", str(self._port))
        records = ("--registry-dir", str(self._site.records))
        words = ("-m", "bascule", "registry", "serve", *ports, *data, *records, *self._tls)
        with on_cores({one_core()}):
            server = await started(words)
        async with ended(server):
            await line(server, READY)
            yield server.pid

    def place(self, pid: int, work: str) -> Place:
        return Place(f"127.0.0.1:{self._port}", pid, self.tokens, work, self._ca)


async def _at(nodes: int, measure: Callable[[Control], Awaitable[Figures]]) -> Figures:
    with TemporaryDirectory() as name:
        site = await make_site(Path(name))
        async with token_store()(site.data) as tokens:
            made = list[str]()
            while len(made) < nodes:
                names = range(len(made), min(nodes, len(made) + MINTED_AT_ONCE))
                some = await asyncio.gather(*(tokens.mint(f"node{n:05}", "node") for n in names))
                made += [one.token for one in some]
        return await measure(Control(site, made))


async def _measured(control: Control, work: str = "quiet") -> Figures:
    async with control.served() as pid, _clients(control.place(pid, work)) as clients:
        return json.loads(await line(clients, b"{", END_SECONDS))


async def _joined(control: Control, *, tls: bool = False) -> Figures:
    if tls:
        control.with_tls()
    return await _measured(control, "join")


async def _stormed(control: Control) -> Figures:
    async with control.served() as pid:
        stack = _clients(control.place(pid, "storm"))
        clients = await stack.__aenter__()
        await line(clients, b"following", END_SECONDS)
    try:
        await line(clients, b"lost", END_SECONDS)
        await SYSTEM_CLOCK.sleep(AWAY_SECONDS)
        async with control.served():
            return json.loads(await line(clients, b"{", END_SECONDS))
    finally:
        await stack.__aexit__(None, None, None)


@asynccontextmanager
async def _clients(place: Place) -> AsyncGenerator[asyncio.subprocess.Process]:
    with on_cores(os.sched_getaffinity(0) - {one_core()}):
        clients = await started(("-m", "bench.node_clients"))
    async with ended(clients):
        assert clients.stdin is not None
        clients.stdin.write(json.dumps(asdict(place)).encode() + b"\n")
        yield clients


# --- what it means


def _quiet_rows(quiet: Figures, costs: Costs) -> list[Row]:
    title = f"{NODES:,} quiet nodes"
    return [
        at_most(f"{title}: CPU of their replica", quiet["quiet"] * 100, "% of a core", 15),
        Row(f"{title}: if they polled as well", quiet["polling"] * 100, "% of a core"),
        Row(f"{title}: of which bookmarks and notes", quiet["silent"] * 100, "% of a core"),
        Row(f"{title}: seconds watched", QUIET_SECONDS, "s"),
        Row(
            f"{title}: CPU by the model",
            fleet_model.quiet(NODES, 1, costs, 300.0) * 100,
            "% of a core",
        ),
        Row(
            f"{title}: CPU by the model, if they polled as well",
            fleet_model.quiet(NODES, 1, costs, 300.0, polling=True) * 100,
            "% of a core",
        ),
        Row(
            "CPU of the replica: a stream that begins on a connection that is there",
            costs.opening * 1e6,
            "us",
        ),
        Row("CPU of the replica: a poll", costs.poll * 1e6, "us"),
        Row("CPU of the replica: a report that says the same", costs.report * 1e6, "us"),
        Row("CPU of the replica: a bookmark for one node", costs.bookmark * 1e6, "us"),
    ]


def _checked(storm: Figures, costs: Costs) -> list[Row]:
    """Compare the model with followers that were measured."""
    title = f"{FOLLOWERS} followers, registry away for {AWAY_SECONDS:g} s"
    model = fleet_model.storm(FOLLOWERS, 1, costs, AWAY_SECONDS)
    found = list[Row]()
    for name, part in PARTS.items():
        expected = model.part(part) - model.part(FIRST)
        apart = max(expected / storm[name], storm[name] / expected)
        found += [
            Row(f"{title}: from a tenth to {name} back, measured", storm[name], "s"),
            Row(f"{title}: from a tenth to {name} back, by the model", expected, "s"),
            at_most(f"{title}: to {name}, model and measured apart", apart, "x", 1.5),
        ]
    return found


def _modelled(costs: Costs) -> list[Row]:
    found = list[Row]()
    for replicas in 1, 2, 3:
        title = f"model: {NODES:,} nodes, {replicas} replicas"
        back = fleet_model.storm(NODES, replicas, costs, 60.0)
        found += [
            Row(f"{title} away for 60 s: half back after", back.part(0.5), "s"),
            Row(f"{title} away for 60 s: all back after", back.part(1.0), "s"),
            Row(f"{title} away for 60 s: answers too late", back.late, ""),
        ]
        if replicas > 1:
            back = fleet_model.rolling(NODES, replicas, costs)
            found += [
                Row(f"{title}, restarted in turn: longest without a stream", back.part(1.0), "s"),
                Row(f"{title}, restarted in turn: answers too late", back.late, ""),
                Row(f"{title}, restarted in turn: at the fullest", back.fullest * 100, "%"),
            ]
    return found
