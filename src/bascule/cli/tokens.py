"""``bascule tokens``: the tokens of a data directory, whether or not a process serves it.

It works on the files themselves, so whoever may read the data directory needs no token to make
one; a process that serves it sees the change at the next request.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import to_builtins
from msgspec.structs import asdict

from bascule.app.owner_access import owner_note, owner_records, owner_tokens
from bascule.app.settings import Settings
from bascule.auth.token_record import TokenRecord
from bascule.auth.token_request import doubts
from bascule.cli.acts import whoever
from bascule.cli.command import run_async, show, shown
from bascule.cli.configuration import CONFIG, DATA_DIR, read_settings
from bascule.cli.endpoint import NotServing, served_url
from bascule.cli.failures import report
from bascule.cli.parser import (
    EXIT_FAILED,
    JSON,
    Parser,
    Run,
    actions_of,
    command,
    many,
    option,
    switch,
)
from bascule.cli.table import render_table
from bascule.db.errors import StoreUnavailable
from bascule.errors import InvalidRecord
from bascule.model.role import ROLES
from bascule.wire.api.addresses import GATEWAY
from bascule.wire.api.tokens import TokenList, TokenMade, TokenShown
from bascule.wire.narrowing import USER

_CREATE_EXAMPLES = """\
  bascule tokens create --role client --task demo --json
  bascule tokens create --role viewer --name dashboard --ttl 86400
  bascule tokens create --role approver --user alice --for-task billing
  bascule tokens create --role client --task demo --act-for-users
"""


#: The options that the fields of a token are given by.
_OPTIONS = {
    "name": "name",
    "role": "role",
    "task_id": "task",
    "person": "user",
    "acts_for_users": "act_for_users",
    "tasks": "for_task",
    "ttl_seconds": "ttl",
}


def fill(group: Parser) -> None:
    """Add the commands of ``tokens``."""
    actions = actions_of(group)
    making = command(
        actions, "create", "create a token", _on_tokens(create), epilog=_CREATE_EXAMPLES
    ).takes(
        option("--role", None, "what it may do", required=True, choices=ROLES),
        option("--task", "ID", "the task of a client token"),
        option("--name", "NAME", "who it is for (the role)"),
        option("--user", "ID", "whose it is: a person of the registry"),
        switch("--act-for-users", "a client's that names a person in every request"),
        many("--for-task", "ID", "an approver or viewer of this task alone; repeatable"),
        option("--ttl", "SECONDS", "how long it is valid", type=float),
        *(DATA_DIR, CONFIG, JSON),
    )
    making.description = "create a token; it is shown once and cannot be read again"
    listing = _on_tokens(list_tokens)
    command(actions, "list", "list the tokens", listing, DATA_DIR, CONFIG, JSON)
    which = option("id", "ID", "its id, as listed")
    command(actions, "revoke", "revoke a token", _on_tokens(revoke), which, DATA_DIR, CONFIG, JSON)


def _on_tokens(
    work: Callable[[Settings, argparse.Namespace], Coroutine[object, object, int]],
) -> Run:
    """Return a command that works on a data directory."""

    def run(arguments: argparse.Namespace) -> int:
        try:
            return run_async(work(read_settings(arguments), arguments))
        except OSError as error:
            return report(error, as_json=arguments.json)

    return run


async def create(settings: Settings, arguments: argparse.Namespace) -> int:
    """Make a token and print it."""
    async with owner_tokens(settings, note=owner_note(settings), first=True) as tokens:
        with naming_options(arguments):
            minted = await tokens.mint(
                arguments.name or arguments.role,
                arguments.role,
                by=whoever(),
                task_id=arguments.task,
                ttl_seconds=arguments.ttl,
                person=arguments.user,
                acts_for_users=arguments.act_for_users,
                tasks=arguments.for_task or None,
            )
    warnings = await doubts_of(minted.record, settings)
    made = TokenMade(**asdict(minted.record.shown("valid")), token=minted.token, warnings=warnings)
    if made.role != "client":
        return show(arguments, made, made.token, warnings=warnings)
    address = f"{_address(settings)}{GATEWAY}"
    plain = {**to_builtins(made), "mcp_url": address}
    return show(
        arguments, plain, made.token, notes=_how_to_connect(made, address), warnings=warnings
    )


@contextmanager
def naming_options(arguments: argparse.Namespace) -> Generator[None]:
    """Name the options of a command in what is wrong with a token, not the fields of one."""
    given = {field: name for field, name in _OPTIONS.items() if hasattr(arguments, name)}
    try:
        yield
    except InvalidRecord as error:
        raise InvalidRecord([_by_option(one, given) for one in error.problems]) from None


def _by_option(problem: str, options: Mapping[str, str]) -> str:
    path, _, words = problem.partition(": ")
    name = options.get(path.partition("[")[0])
    return problem if name is None else f"--{name.replace('_', '-')}: {words}"


def _address(settings: Settings) -> str:
    """Return where the process serves, or where it will by the settings."""
    try:
        return served_url(Path(settings.data_dir))
    except NotServing:
        server = settings.server
        scheme = "http" if server.tls_certificate is None else "https"
        host = f"[{server.host}]" if ":" in server.host else server.host
        return f"{scheme}://{host}:{server.port}"


def _how_to_connect(made: TokenMade, address: str) -> list[str]:
    """Say what an MCP client needs beside the token; the token itself is on standard output."""
    names = f", {USER}: PERSON in every request" if made.acts_for_users else ""
    return [
        f"connect an MCP client to {address}",
        f"  with the header Authorization: Bearer and this token{names}",
    ]


async def doubts_of(record: TokenRecord, settings: Settings) -> tuple[str, ...]:
    """Say what the registry does not know of a token; before the first start it knows nothing."""
    try:
        records = await owner_records(settings)
        return () if records is None else doubts(record, records)
    except StoreUnavailable as error:
        return (f"whether its task and person exist is not known: {error}",)


async def list_tokens(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print what is kept of the tokens."""
    async with owner_tokens(settings) as tokens:
        records = await tokens.listing()
    header = ("id", "role", "task", "user", "name", "made", "state")
    return show(
        arguments, TokenList(records), render_table(header, [_row(record) for record in records])
    )


def _row(record: TokenShown) -> list[str]:
    tasks = record.task_id or ", ".join(record.tasks or ()) or "-"
    user = "(any)" if record.acts_for_users else record.person or "-"
    words = (record.id, record.role, tasks, user, record.name)
    until = f" until {_to_minutes(record.expires_at)}" if record.expires_at else ""
    state = f"valid{until}" if record.state == "valid" else record.state
    return [*map(shown, words), _to_minutes(record.created_at), state]


def _to_minutes(at: str | None) -> str:
    """Return a time as people read it in a list; ``--json`` has all of it."""
    return "-" if at is None else f"{at[:10]} {at[11:16]}Z"


async def revoke(settings: Settings, arguments: argparse.Namespace) -> int:
    """End a token from its next use on."""
    token_id: str = arguments.id
    async with owner_tokens(settings, note=owner_note(settings)) as tokens:
        revoked = await tokens.revoke(token_id, by=whoever())
    show(arguments, {"revoked": revoked}, notes=[f"revoked {shown(token_id)}"] * revoked)
    if not revoked:
        print(f"error: there is no token {shown(token_id)}", file=sys.stderr)
    return 0 if revoked else EXIT_FAILED
