"""A governed call over stdio beside a raw client and the official SDK's, in alternating rounds.

Every client (``stdio_clients``) has the same echo tool behind it. Goals are for client and server
on one core: on two, what is measured is mostly how long one core takes to wake another.
"""

from __future__ import annotations

from functools import partial

from bench.rounds import BESIDE_SDK, CROWD, SDK, Ratio, Setting, rows
from bench.stdio_clients import CLIENTS
from bench.table import Row, at_least, at_most

NAME = "stdio"
LEAN = Ratio("p50, Bascule / lean", "p50", "bascule", "lean")
RATIOS = (
    LEAN,
    *BESIDE_SDK,
    Ratio("CPU of client and server, Bascule / lean", "family_cpu", "bascule", "lean"),
    Ratio("client CPU, SDK / Bascule", "cpu", "sdk", "bascule"),
    Ratio("p50, Bascule / bare", "p50", "bascule", "bare"),
)
GOALS = {
    LEAN.name: partial(at_most, goal=1.8),
    SDK.name: partial(at_least, goal=5.5),
    CROWD.name: partial(at_least, goal=9.5),
}

_stdio = partial(Setting, module="bench.stdio_clients", clients=tuple(CLIENTS), ratios=RATIOS)
SETTINGS = (
    _stdio("one core", goals=GOALS),
    _stdio("one core, asyncio", loop="asyncio", goals={SDK.name: partial(at_least, goal=5)}),
    _stdio("any core", pinned=False),
    _stdio("one core, SDK server", server="sdk", rounds=6, turns=60, crowd=256),
)


def run() -> list[Row]:
    """Measure every setting."""
    return [row for setting in SETTINGS for row in rows(setting)]
