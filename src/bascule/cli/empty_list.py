"""Why a list of tools is empty, and what to type next.

Below: the explanations of a session. Above: ``tools list``.
"""

from __future__ import annotations

import argparse
import shlex

from bascule.cli.command import shown
from bascule.cli.command_line import typed
from bascule.policy.explain import Explanation


def why_none(explanations: tuple[Explanation, ...], arguments: argparse.Namespace) -> list[str]:
    """Return lines: for each server the first denial, how many more there are, and the command.

    A server that gave no tools at all has a warning of its own; none at all is said in general.
    """
    denied: dict[str, list[Explanation]] = {}
    for one in explanations:
        if not one.allowed:
            denied.setdefault(one.server, []).append(one)
    if not explanations:
        return [f"the task has no servers: {typed('tasks use TASK SERVER', arguments)}"]
    return [line for found in denied.values() for line in _lines(found, arguments)]


def _lines(found: list[Explanation], arguments: argparse.Namespace) -> list[str]:
    first, more = found[0], len(found) - 1
    rest = f" (and {more} more)" if more else ""
    name = f"{first.server}/{first.tool}" if first.tool else first.server
    command = typed(f"tools explain {shlex.quote(name)}", arguments)
    return [f"{shown(str(first.decision))}{rest}", f"what would allow it: {command}"]
