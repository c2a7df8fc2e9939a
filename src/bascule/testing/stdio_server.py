"""Start the scripted MCP server: ``python -I -S stdio_server.py SCRIPT``.

SCRIPT is JSON, or the path of a file that holds it; ``bascule.testing.server`` writes it and
documents every key.
"""

from __future__ import annotations

import json
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bascule.testing.peer.frames import Json

LIFE_SECONDS = 600  # a forgotten process ends by itself


def bare_packages() -> None:
    """Let ``bascule.testing.peer`` be imported without the rest: its parents' code is not run."""
    place = __file__
    for name in ("bascule.testing", "bascule"):
        place = place.rpartition("/")[0]
        package = type(sys)(name)
        package.__path__ = [place]
        sys.modules[name] = package


def read_script(argument: str) -> Json:
    """The script itself, or the file it names."""
    if argument.startswith("{"):
        return json.loads(argument)
    descriptor = os.open(argument, os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as stream:
        return json.load(stream)


def main() -> None:
    """Read the script and live by it."""
    from bascule.testing.peer.behaviours import BEHAVIOURS  # noqa: PLC0415 (after bare_packages)
    from bascule.testing.peer.faults import FAULTS  # noqa: PLC0415
    from bascule.testing.peer.frames import Server, append  # noqa: PLC0415
    from bascule.testing.peer.protocol import METHODS  # noqa: PLC0415

    script = read_script(sys.argv[1])
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.alarm(script.get("life_seconds", LIFE_SECONDS))
    if script.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    append(script.get("starts"), str(os.getpid()).encode())
    Server(script, METHODS, {**BEHAVIOURS, **FAULTS}).run()


if __name__ == "__main__":
    bare_packages()
    main()
