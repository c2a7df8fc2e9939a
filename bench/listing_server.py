"""An MCP server on stdio with many tools, which notes every request that it is sent.

``listing_server.py COUNT FILE``: the definitions are of the size that real ones have, and each
request adds a line to the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PROPERTIES = {
    "path": {"type": "string", "description": "Where to look, relative to the project."},
    "pattern": {"type": "string", "description": "What a line has to match."},
    "limit": {"type": "integer", "minimum": 1, "description": "How many lines at most."},
}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["path"]}
DESCRIPTION = "Looks through files and gives back the lines that match, with their numbers."


def results(count: int) -> dict[str, object]:
    tools = [
        {"name": f"tool_{number:04}", "description": DESCRIPTION, "inputSchema": SCHEMA}
        for number in range(count)
    ]
    info = {"name": "listing", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    return {"initialize": hello, "ping": {}, "tools/list": {"tools": tools}}


def main(count: int, requests: Path) -> None:
    known = results(count)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        method = message["method"]
        with requests.open("a", encoding="utf-8") as lines:
            lines.write(f"{method}\n")
        error = {"code": -32601, "message": "Method not found"}
        said = {"result": known[method]} if method in known else {"error": error}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
