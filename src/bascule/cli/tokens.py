"""``bascule tokens``: the tokens of a data directory, whether or not a process serves it.

Below: the token store. It works on the files themselves, so whoever may read the data directory
needs no token to make one; a process that serves it sees the change at the next request.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from bascule.app.lost_registry import is_fresh, note_unstarted
from bascule.auth.token_store import open_tokens
from bascule.cli.command import print_json, run_async, shown
from bascule.cli.configuration import add_data_options, read_settings
from bascule.cli.failures import report_os_error
from bascule.cli.parser import (
    actions_of,
    add_json,
    command,
)
from bascule.cli.table import render_table
from bascule.model.role import ROLES
from bascule.wire.api.tokens import TokenList, TokenShown

_CREATE_EXAMPLES = """\
  bascule tokens create --role client --task demo --json
  bascule tokens create --role viewer --name dashboard --ttl 86400
"""


def fill(group: argparse.ArgumentParser) -> None:
    """Add the commands of ``tokens``."""
    actions = actions_of(group)
    making = command(actions, "create", "create a token", create, _CREATE_EXAMPLES)
    making.description = "create a token; it is shown once and cannot be read again"
    making.add_argument("--role", required=True, choices=ROLES, help="what it may do")
    making.add_argument("--task", metavar="ID", help="the task of a client token")
    making.add_argument("--name", metavar="NAME", help="who it is for (the role)")
    making.add_argument("--ttl", type=float, metavar="SECONDS", help="how long it is valid")
    listing = command(actions, "list", "list the tokens", list_tokens)
    ending = command(actions, "revoke", "revoke a token", revoke)
    ending.add_argument("id", metavar="ID", help="its id, as listed")
    for parser in (making, listing, ending):
        add_data_options(parser)
        add_json(parser)


def create(arguments: argparse.Namespace) -> int:
    """Make a token and print it."""
    return _run(_create(_data_dir(arguments), arguments), as_json=arguments.json)


async def _create(data_dir: Path, arguments: argparse.Namespace) -> int:
    fresh = is_fresh(data_dir)
    async with open_tokens(data_dir) as tokens:
        if fresh:
            note_unstarted(data_dir)
        minted = await tokens.mint(
            arguments.name or arguments.role,
            arguments.role,
            task_id=arguments.task,
            ttl_seconds=arguments.ttl,
        )
    if arguments.json:
        print_json({"token": minted.token, **to_builtins(minted.record.shown())})
    else:
        print(minted.token)
    return 0


def list_tokens(arguments: argparse.Namespace) -> int:
    """Print what is kept of the tokens."""
    return _run(_list(_data_dir(arguments), as_json=arguments.json), as_json=arguments.json)


async def _list(data_dir: Path, *, as_json: bool) -> int:
    async with open_tokens(data_dir) as tokens:
        records = tuple(record.shown() for record in await tokens.records())
    if as_json:
        print_json(TokenList(records))
    else:
        header = ("id", "role", "task", "name", "made", "expires")
        print(render_table(header, [_row(record) for record in records]))
    return 0


def _row(record: TokenShown) -> list[str]:
    times = [at or "-" for at in (record.created_at, record.expires_at)]
    return [record.id, record.role, shown(record.task_id or "-"), shown(record.name), *times]


def revoke(arguments: argparse.Namespace) -> int:
    """End a token from its next use on."""
    work = _revoke(_data_dir(arguments), arguments.id, as_json=arguments.json)
    return _run(work, as_json=arguments.json)


async def _revoke(data_dir: Path, token_id: str, *, as_json: bool) -> int:
    async with open_tokens(data_dir) as tokens:
        revoked = await tokens.revoke(token_id)
    if as_json:
        print_json({"revoked": revoked})
    elif revoked:
        print(f"revoked {shown(token_id)}", file=sys.stderr)
    if not revoked:
        print(f"error: there is no token {shown(token_id)}", file=sys.stderr)
    return 0 if revoked else 1


def _data_dir(arguments: argparse.Namespace) -> Path:
    return Path(read_settings(arguments).data_dir)


def _run(work: Coroutine[Any, Any, int], *, as_json: bool) -> int:
    try:
        return run_async(work)
    except OSError as error:
        return report_os_error(error, as_json=as_json)
