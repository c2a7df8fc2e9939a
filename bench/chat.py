"""A chat turn with one tool call at the chat door, beside agent libraries on the same work.

Alternating rounds (``rounds``) before an instant model and a lean tool server. ``floor`` is
what no loop can do without: two requests to the model and a governed call; the cost of a turn is
what the chat door takes beyond that.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.chat_clients import CLIENTS
from bench.rounds import Rounds, Setting, absolute, alternate
from bench.streams import stalls
from bench.table import Row, at_most

NAME = "chat"
PEERS = ("openai-agents", "pydantic-ai")


def run() -> list[Row]:
    """Measure turns; then two hundred streams at once."""
    with upstream() as url:
        setting = Setting(
            title="a turn",
            module="bench.chat_clients",
            clients=tuple(CLIENTS),
            loop="uvloop",
            server=url,
            pinned=False,
            rounds=8,
            crowd=128,
        )
        rounds = alternate(setting)
        return [*compared(rounds), *absolute(setting, rounds), *stalls(url)]


@contextmanager
def upstream() -> Generator[str]:
    """Run the model's server; it ends when its input does."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.chat_upstream"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=Path(__file__).parents[1],
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def compared(rounds: Rounds) -> list[Row]:
    """What a turn costs beyond the floor, and how much more the peers take."""
    pairs = zip(rounds.turns["bascule"], rounds.turns["floor"], strict=True)
    beyond = median(one["p50"] - other["p50"] for one, other in pairs) / 1e3
    return [
        at_most("a turn at the chat door beyond upstream and tool, p50", beyond, "ms", 1),
        *(
            Row(
                f"a turn, {peer} / Bascule, p50",
                rounds.ratio("turns", "p50", peer, "bascule"),
                "x",
            )
            for peer in PEERS
        ),
    ]
