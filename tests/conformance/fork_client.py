"""What the suite runs as its client: asks ``fork_server.py`` for one, and ends as that one ends.

It loads next to nothing, so that a scenario does not pay for the start of Python and the package.
"""

from __future__ import annotations

import json
import os
import socket
import sys


def main(address: str, url: str) -> int:
    """Hand over what the suite says, and where to print; return the exit code of the client."""
    names = ("MCP_CONFORMANCE_SCENARIO", "MCP_CONFORMANCE_CONTEXT")
    said = {name: os.environ[name] for name in names if name in os.environ}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [json.dumps([url, said]).encode()], [1, 2])
        server.shutdown(socket.SHUT_WR)
        code = server.recv(1)
    return code[0] if code else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
