"""Public test doubles: real implementations that can be told what to do.

``ScriptedServer`` is an MCP server in a process of its own, good or bad as its script says;
``ScriptedHttpServer`` serves the same script over HTTP from this process;
``ScriptedUpstream`` is a model's server in OpenAI's dialect, with ``says``, ``calls``, ``streams``,
``sends``, ``fails`` and ``hangs`` to tell it what to answer;
``FakeClock`` is a clock that stands still until it is moved.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from bascule.testing.clock import FakeClock
from bascule.testing.server import MALFORMED_TOOLS, ScriptedServer, do, tool

if TYPE_CHECKING:
    from bascule.testing.http_server import ScriptedHttpServer
    from bascule.testing.upstream import (
        Gate,
        Reply,
        ScriptedUpstream,
        calls,
        chunk,
        fails,
        hangs,
        says,
        sends,
        streams,
    )

__all__ = [
    "MALFORMED_TOOLS",
    "FakeClock",
    "Gate",
    "Reply",
    "ScriptedHttpServer",
    "ScriptedServer",
    "ScriptedUpstream",
    "calls",
    "chunk",
    "do",
    "fails",
    "hangs",
    "says",
    "sends",
    "streams",
    "tool",
]

_AT_HAND = frozenset({"MALFORMED_TOOLS", "FakeClock", "ScriptedServer", "do", "tool"})


def __getattr__(name: str) -> object:
    """Load what speaks HTTP when it is asked for: only that needs aiohttp."""
    if name not in __all__ or name in _AT_HAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "http_server" if name == "ScriptedHttpServer" else "upstream"
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise ImportError(f"{name} needs aiohttp: pip install 'bascule[testing]'") from error
