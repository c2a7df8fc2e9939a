"""A governed call over streamable HTTP beside bare clients and the official SDK's.

Alternating rounds (``rounds``), client and server on one core; on any core beside it, and with a
real SDK server behind.
"""

from __future__ import annotations

from functools import partial

from bench.rounds import BESIDE_SDK, CROWD, SDK, Ratio, Setting, rows
from bench.table import Row, at_least, at_most

NAME = "http"
BARE = Ratio("p50, Bascule / bare client on httptools", "p50", "bascule", "httptools")
RATIOS = (
    BARE,
    *BESIDE_SDK,
    Ratio("CPU of client and server, Bascule / httptools", "family_cpu", "bascule", "httptools"),
    Ratio("p50, Bascule / bare aiohttp", "p50", "bascule", "aiohttp"),
)
GOALS = {
    BARE.name: partial(at_most, goal=2.2),
    SDK.name: partial(at_least, goal=13),
    CROWD.name: partial(at_least, goal=15),
}

_http = partial(
    Setting,
    module="bench.http_clients",
    clients=("httptools", "aiohttp", "bascule", "sdk"),
    ratios=RATIOS,
    crowd=320,
)
SETTINGS = (
    _http("one core", goals=GOALS),
    _http("any core", pinned=False),
    _http("one core, SDK server", server="sdk", rounds=6, turns=30, crowd=128),
)


def run() -> list[Row]:
    """Measure every setting."""
    return [row for setting in SETTINGS for row in rows(setting)]
