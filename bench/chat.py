"""A chat turn with one tool call at the chat door, beside agent libraries on the same work.

Alternating rounds (``rounds``) before an instant model and a lean tool server, all on one core.
``floor`` is what no loop can do without: two requests to the model and a governed call; the cost
of a turn is what the chat door takes beyond that.
"""

from __future__ import annotations

from functools import partial

from bench.rounds import Ratio, Rounds, Setting, absolute, alternate, ratios
from bench.streams import stalls
from bench.table import Row, at_least, at_most

NAME = "chat"
PEER = "openai-agents"
CROWD = Ratio(
    "turns per second at 64, Bascule / openai-agents",
    "each",
    PEER,
    "bascule",
    kind="crowd",
)
TURN = Setting(
    title="a turn",
    module="bench.chat_clients",
    clients=("floor", "bascule", PEER, "pydantic-ai"),
    ratios=(
        CROWD,
        Ratio("CPU of all at 64, openai-agents / Bascule", "family_cpu", PEER, "bascule", "crowd"),
        Ratio("p50, openai-agents / Bascule", "p50", PEER, "bascule"),
        Ratio("p50, pydantic-ai / Bascule", "p50", "pydantic-ai", "bascule"),
    ),
    goals={CROWD.name: partial(at_least, goal=20)},
    server="",
    rounds=8,
    turns=60,
    crowd=128,
)


def run() -> list[Row]:
    """Measure turns; then two hundred streams at once."""
    rounds = alternate(TURN)
    return [*beyond(rounds), *ratios(TURN, rounds), *absolute(TURN, rounds), *stalls()]


def beyond(rounds: Rounds) -> list[Row]:
    """What a turn costs beyond the floor."""
    more = rounds.difference("p50", "bascule", "floor") / 1e3
    name = "a turn: at the chat door beyond upstream and tool, p50"
    quietest = rounds.quietest("bascule", "floor") / 1e3
    return [
        at_most(name, more, "ms", 0.55, "on a quiet core"),
        Row("the same, by the fastest rounds", quietest, "ms"),
    ]
