"""What the tests of the loop share: a listener, a way to talk, and what the upstream was told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bascule.loop.budgets import LoopSettings
from bascule.loop.events import Conclusion, Delta, LoopEvent, TurnParked
from bascule.loop.turns import converse
from tests.loop.fakes import FakeUpstream, chat
from tests.node.fakes import World

READ, WRITE = "mcp__fs__read", "mcp__fs__write"
_OPTIONS = ("tell", "clock", "metrics", "wait_turn", "parking", "own_tools")
OWN = {"type": "function", "function": {"name": "own", "parameters": {"type": "object"}}}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "details": {"cached": 1}}


class Heard:
    """Listens to a conversation."""

    def __init__(self) -> None:
        self.events: list[LoopEvent] = []

    async def __call__(self, event: LoopEvent) -> None:
        self.events.append(event)

    def of(self, *kinds: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def text(self) -> str:
        said = (
            event.text if isinstance(event, TurnParked) else event.fields.get("content", "")
            for event in self.of(Delta, TurnParked)
        )
        return "".join(said)


async def talk(world: World, upstream: FakeUpstream, **fields: Any) -> Conclusion:
    settings = fields.pop("settings", LoopSettings())
    options = {key: fields.pop(key) for key in _OPTIONS if key in fields}
    async with asyncio.timeout(10):
        return await converse(
            chat(**fields), world.session(), upstream, settings=settings, **options
        )


def results(upstream: FakeUpstream, turn: int = -1) -> list[dict[str, Any]]:
    """Return the tool messages of a request the upstream got."""
    return [m for m in upstream.asked[turn]["messages"] if m["role"] == "tool"]


def error_of(message: dict[str, Any]) -> str:
    return json.loads(message["content"])["error"]["code"]
