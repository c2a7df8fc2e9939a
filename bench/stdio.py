"""A governed call over stdio beside a raw client and the official SDK's, in alternating rounds.

Every client (``stdio_clients``) has the same echo tool behind it. Goals are for client and server
on one core: on two, what is measured is mostly how long one core takes to wake another.
"""

from __future__ import annotations

from functools import partial

from bench.rounds import Rounds, Setting, absolute, measured
from bench.stdio_clients import CLIENTS
from bench.table import Row, at_least, at_most

NAME = "stdio"

_stdio = partial(Setting, module="bench.stdio_clients", clients=tuple(CLIENTS))
SETTINGS = (
    _stdio("one core", loop="uvloop", server="floor", pinned=True),
    _stdio("any core", loop="uvloop", server="floor", pinned=False),
    _stdio("one core, asyncio", loop="asyncio", server="floor", pinned=True),
    _stdio("one core, SDK server", loop="uvloop", server="sdk", pinned=True, rounds=6, crowd=256),
)


def run() -> list[Row]:
    """Measure every setting; only the first has goals."""
    return measured(SETTINGS, with_goals, beside)


def with_goals(setting: Setting, rounds: Rounds) -> list[Row]:
    """The figures that were promised, and what they are made of."""
    title, ratio = setting.title, rounds.ratio
    return [
        at_most(f"{title}: p50, Bascule / lean", ratio("turns", "p50", "bascule", "lean"), "x", 2),
        at_least(f"{title}: p50, SDK / Bascule", ratio("turns", "p50", "sdk", "bascule"), "x", 4),
        at_least(
            f"{title}: client CPU, SDK / Bascule", ratio("turns", "cpu", "sdk", "bascule"), "x", 5
        ),
        at_least(
            f"{title}: calls per second at 64, Bascule / SDK",
            ratio("crowd", "each", "sdk", "bascule"),
            "x",
            8,
        ),
        Row(f"{title}: p50, Bascule / bare", ratio("turns", "p50", "bascule", "bare"), "x"),
        *absolute(setting, rounds),
    ]


def beside(setting: Setting, rounds: Rounds) -> list[Row]:
    """The same ratios where nothing was promised."""
    title, ratio = setting.title, rounds.ratio
    return [
        Row(f"{title}: p50, Bascule / lean", ratio("turns", "p50", "bascule", "lean"), "x"),
        Row(f"{title}: p50, SDK / Bascule", ratio("turns", "p50", "sdk", "bascule"), "x"),
        Row(f"{title}: client CPU, SDK / Bascule", ratio("turns", "cpu", "sdk", "bascule"), "x"),
        Row(
            f"{title}: calls per second at 64, Bascule / SDK",
            ratio("crowd", "each", "sdk", "bascule"),
            "x",
        ),
        *absolute(setting, rounds),
    ]
