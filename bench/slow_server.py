"""A server whose one tool takes half a second, for any number of callers at once."""

from __future__ import annotations

import asyncio
import json
import sys

from bench.floor_server import RESULTS

SECONDS = 0.5
DONE = {"content": [{"type": "text", "text": "done"}]}


async def answer(request: dict[str, object]) -> None:
    """Answer a request; calls after a while."""
    method = str(request["method"])
    if method == "tools/call":
        await asyncio.sleep(SECONDS)  # noqa: TID251 - it is slow on purpose
    frame = {"jsonrpc": "2.0", "id": request["id"], "result": RESULTS.get(method, DONE)}
    sys.stdout.write(json.dumps(frame) + "\n")
    sys.stdout.flush()


async def main() -> None:
    """Read requests until there are none."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    answers: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        request = json.loads(line)
        if "id" in request:
            answers.add(asyncio.create_task(answer(request)))


if __name__ == "__main__":
    asyncio.run(main())
