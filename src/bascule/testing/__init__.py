"""Public test doubles: real implementations that can be told what to do.

``ScriptedServer`` is an MCP server in a process of its own, good or bad as its script says;
``ScriptedHttpServer`` serves the same script over HTTP from this process;
``ScriptedUpstream`` is a model's server in OpenAI's dialect, with ``says``, ``calls``, ``streams``,
``sends``, ``fails`` and ``hangs`` to tell it what to answer;
``FakeClock`` is a clock that stands still until it is moved.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("aiohttp") is None:
    raise ImportError("bascule.testing needs aiohttp: pip install 'bascule[testing]'")

from bascule.testing.clock import FakeClock
from bascule.testing.http_server import ScriptedHttpServer
from bascule.testing.server import MALFORMED_TOOLS, ScriptedServer, do, tool
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
