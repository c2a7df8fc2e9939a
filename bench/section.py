"""The section: what a call through it costs over the same call made on the bridge itself.

Both cross one bridge, to one server, in turns: the one call on ``BlockingSession``, the next by a
bridged tool's handler, with its dataclass in, its ``ToolResult`` out, a transaction and an event.
What is compared is the median of the differences of neighbouring calls.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from timeit import default_timer
from typing import Any

from bascule import Bridge, Server
from bascule.section import (
    InProcessEventBus,
    McpIntegrationSection,
    McpServerConfig,
    Session,
    StdioTransport,
    ToolInvoked,
)
from bench.serving import ARGUMENTS, TEXT
from bench.stdio_clients import command
from bench.table import Row, at_most

NAME = "section"
WARM_UP = 200
CALLS = 3000


def run() -> list[Row]:
    """Make the same call both ways, in turns."""
    executable, script = command("floor")
    transport = StdioTransport(command=executable, args=(script,))
    session = Session(bus=_heard())
    with (
        Bridge.blocking([Server.stdio("bench", executable, script)]) as bridge,
        bridge.session(server_ids=["bench"]) as direct,
        McpIntegrationSection(
            servers=[McpServerConfig(name="bench", transport=transport)],
            session=session,
            bridge=bridge,
        ) as section,
    ):
        (name,) = direct.tools().names
        (tool,) = section.tools()
        assert tool.params_type is not None
        params, context = tool.params_type(**ARGUMENTS), section.context()
        return _rows(
            *_in_turns(
                lambda: direct.call(name, ARGUMENTS, timeout=30).text,
                lambda: tool.handler(params, context=context).text,
            )
        )


def _heard() -> InProcessEventBus:
    """Return a bus with somebody on it, as there is in earnest."""
    bus = InProcessEventBus()
    bus.subscribe(ToolInvoked, lambda event: event.result)
    return bus


def _in_turns(one: Callable[[], str], other: Callable[[], str]) -> tuple[list[float], list[float]]:
    for _ in range(WARM_UP):
        assert one() == other() == TEXT
    taken: Any = ([], [])
    for _ in range(CALLS):
        for call, times in zip((one, other), taken, strict=True):
            began = default_timer()
            call()
            times.append((default_timer() - began) * 1e6)
    return taken


def _rows(direct: list[float], through: list[float]) -> list[Row]:
    over = median(b - a for a, b in zip(direct, through, strict=True))
    return [
        at_most("a call through the section, over the bridge, p50", over, "us", 80),
        Row("a call on the bridge (BlockingSession.call), p50", median(direct), "us"),
        Row("the same through the section, p50", median(through), "us"),
    ]
