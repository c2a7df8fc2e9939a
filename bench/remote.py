"""A governed call over streamable HTTP beside a bare aiohttp loop and the official SDK's client.

Alternating rounds (``rounds``), client and server on one core; on any core beside it, and with a
real SDK server behind.
"""

from __future__ import annotations

from functools import partial

from bench.http_clients import CLIENTS
from bench.rounds import Rounds, Setting, absolute, measured
from bench.table import Row, at_least, at_most

NAME = "http"

_http = partial(Setting, module="bench.http_clients", clients=tuple(CLIENTS), crowd=320)
SETTINGS = (
    _http("one core", loop="uvloop", server="floor", pinned=True),
    _http("any core", loop="uvloop", server="floor", pinned=False),
    _http("one core, SDK server", loop="uvloop", server="sdk", pinned=True, rounds=6, crowd=128),
)


def run() -> list[Row]:
    """Measure every setting; only the first has goals."""
    return measured(SETTINGS, with_goals, beside)


def with_goals(setting: Setting, rounds: Rounds) -> list[Row]:
    """The figures that were promised, and what they are made of."""
    title, ratio = setting.title, rounds.ratio
    return [
        at_most(
            f"{title}: p50, Bascule / bare aiohttp",
            ratio("turns", "p50", "bascule", "bare"),
            "x",
            1.3,
        ),
        at_least(f"{title}: p50, SDK / Bascule", ratio("turns", "p50", "sdk", "bascule"), "x", 5),
        at_least(
            f"{title}: calls per second at 64, Bascule / SDK",
            ratio("crowd", "each", "sdk", "bascule"),
            "x",
            6,
        ),
        *absolute(setting, rounds),
    ]


def beside(setting: Setting, rounds: Rounds) -> list[Row]:
    """The same ratios where nothing was promised."""
    title, ratio = setting.title, rounds.ratio
    return [
        Row(f"{title}: p50, Bascule / bare aiohttp", ratio("turns", "p50", "bascule", "bare"), "x"),
        Row(f"{title}: p50, SDK / Bascule", ratio("turns", "p50", "sdk", "bascule"), "x"),
        Row(
            f"{title}: calls per second at 64, Bascule / SDK",
            ratio("crowd", "each", "sdk", "bascule"),
            "x",
        ),
        *absolute(setting, rounds),
    ]
