"""``bascule approvals hook-key``: the key by which a program knows that Bascule asks it."""

from __future__ import annotations

import argparse
from pathlib import Path

from bascule.cli.command import show
from bascule.cli.configuration import CONFIG, DATA_DIR, read_settings
from bascule.cli.failures import report
from bascule.cli.parser import JSON, Actions, command


def add(actions: Actions) -> None:
    """Add the command to ``approvals``."""
    summary = "print the key that questions to approvals.hook_url are signed with"
    command(actions, "hook-key", summary, print_key, DATA_DIR, CONFIG, JSON)


def print_key(arguments: argparse.Namespace) -> int:
    """Print the key of a data directory, which is made on first use."""
    from bascule.control.approval_hook import hook_key  # noqa: PLC0415 - --help does without

    try:
        key = hook_key(Path(read_settings(arguments).data_dir)).hex()
    except OSError as error:
        return report(error, as_json=arguments.json)
    return show(arguments, {"key": key}, key)
