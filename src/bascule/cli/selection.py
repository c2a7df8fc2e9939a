"""Options that choose servers and tools, as a task and a profile both have them.

Below: nothing. Above: ``tasks.py`` and ``profiles.py``.
"""

from __future__ import annotations

import argparse
from typing import Any


def add_selection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    option = parser.add_argument
    option("--server", action="append", metavar="ID", help="a server by default; repeatable")
    option("--may-use", action="append", metavar="ID", help="one it may ask for; repeatable")
    option("--server-tag", action="append", metavar="TAG", help="servers with a tag; repeatable")
    option("--allow-tool", action="append", metavar="PATTERN", help="only these; repeatable")
    option("--deny-tool", action="append", metavar="PATTERN", help="never these; repeatable")
    option("--read-only", action="store_true", help="only tools that are classed as reading")


def selection(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that the options give; what is not given does not narrow."""
    given = {
        "default_server_ids": arguments.server,
        "allowed_server_ids": _allowed(arguments),
        "server_tags": arguments.server_tag,
        "tool_allowlist": arguments.allow_tool,
        "tool_denylist": arguments.deny_tool,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    return {**chosen, "read_only": arguments.read_only}


def _allowed(arguments: argparse.Namespace) -> list[str] | None:
    """Return the servers it may have at most: those by default are among them."""
    if arguments.may_use is None:
        return None
    return [*dict.fromkeys([*(arguments.server or []), *arguments.may_use])]
