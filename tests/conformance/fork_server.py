"""Forks the clients of the conformance suite from a process that has loaded all they need.

Every scenario has a process of its own, as the suite wants it; what takes a second, to load the
package and the SDK, is done once.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from pathlib import Path

from tests.conformance import client, visitor

#: How many clients run side by side; the suite would start all of them at once.
TOGETHER = 2
_LONGEST = 65_536


def main(address: str, ended: str) -> None:
    """Fork a client for everyone who connects, until somebody ends this process."""
    assert visitor, "loaded here, once for all clients"
    running = 0
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            asking, _ = listening.accept()
            if running == TOGETHER:
                os.wait()
                running -= 1
            if os.fork() == 0:
                listening.close()
                _serve(asking, Path(ended))
            running += 1
            asking.close()


def _serve(asking: socket.socket, ended: Path) -> None:
    """Be the client that was asked for: print there, tell the exit code, and write it down."""
    said, descriptors, _, _ = socket.recv_fds(asking, _LONGEST, 2)
    for stream, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, stream)
    url, environment = json.loads(said)
    os.environ.update(environment)
    sys.argv[1:] = [url]
    code = 1
    try:
        code = client.main()
    except BaseException:  # noqa: BLE001 - as an interpreter does at its end
        traceback.print_exc()
    sys.stderr.flush()
    note = ended / environment["MCP_CONFORMANCE_SCENARIO"]
    note.parent.mkdir(exist_ok=True)
    note.write_text(str(code), "utf-8")
    asking.send(bytes([code]))
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
