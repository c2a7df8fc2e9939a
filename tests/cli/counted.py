"""``bascule`` with a counter around its HTTP app: every request is a line of a file.

``python -m tests.cli.counted FILE up …`` serves as ``bascule up …`` does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from bascule.asgi.guard import GuardedApp
from bascule.cli.main import run


def count(path: Path) -> None:
    """Write down method, path and token of every request that arrives."""
    whole = GuardedApp.__call__

    async def counted(self: GuardedApp, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            token = Headers(scope=scope).get("authorization", "none").split()[-1]
            with path.open("a", encoding="utf-8") as lines:
                lines.write(f"{scope['method']} {scope['path']} {token}\n")
        await whole(self, scope, receive, send)

    GuardedApp.__call__ = counted


if __name__ == "__main__":
    count(Path(sys.argv[1]))
    sys.exit(run(sys.argv[2:]))
