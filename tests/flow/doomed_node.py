"""A node in a process of its own that is going to be killed: ``WORD``.

Its server is deaf to SIGTERM and to the end of its input, and has a detached, double-forked
grandchild as deaf as itself; both carry the word in their command lines. It prints one line when
all of them are there, and then serves until the end.
"""

from __future__ import annotations

import asyncio
import sys

from bascule.node.assembly import Bridge
from bascule.server import Server
from bascule.testing.server import ScriptedServer


async def main(word: str) -> None:
    """Connect, have the grandchild made, say so, and wait for the end."""
    behaviours = {"spawn": "spawn_grandchild", "wait": "never"}
    server = ScriptedServer(
        behaviours=behaviours, name=word, ignore_sigterm=True, ignore_eof=True, life_seconds=120
    )
    command, args = server.command
    async with (
        Bridge.open([Server.stdio("deaf", command, *args)]) as bridge,
        bridge.session(server_ids=["deaf"]) as session,
    ):
        (await session.call("mcp__deaf__spawn")).unwrap()
        waiting = asyncio.create_task(session.call("mcp__deaf__wait"))
        print("ready", flush=True)  # noqa: T201 - whoever kills this waits for it
        await waiting
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
