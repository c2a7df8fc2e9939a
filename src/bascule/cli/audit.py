"""``bascule audit``: what happened, searched and followed, verified, exported, signed.

Where a process serves the data directory it is asked; its files are read where none does. A
verification reads the file itself, also beside a process: what is verified need not be trusted.
"""

from __future__ import annotations

import argparse
import codecs
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import get_args

from msgspec.structs import fields

from bascule.audit.search import EVENTS
from bascule.cli.audit_trail import (
    client_of,
    file_trail,
    ledger_of,
    names_process,
    newest,
    trail_of,
)
from bascule.cli.audit_words import entry_line, entry_table, life_text
from bascule.cli.command import print_line, run_async, show, shown
from bascule.cli.endpoint import verb
from bascule.cli.failures import complain
from bascule.cli.parser import EXIT_FAILED, Option, Parser, actions_of, option, switch
from bascule.cli.values import count, moment
from bascule.clock import SYSTEM_CLOCK
from bascule.errors import InvalidRecord
from bascule.model.code import CallStatus, ErrorCode
from bascule.wire.api.audit import AuditFilters

_LINES = 20
_FOUND = 50
_NOTHING = "nothing found"
_TAIL_EXAMPLES = """\
  bascule audit tail
  bascule audit tail --follow --server github --status failed
"""
_SEARCH_EXAMPLES = """\
  bascule audit search --since 2h --status denied
  bascule audit search --server github --tool create_issue --caller ci
  bascule audit search --event call --status unknown     # calls that nobody knows the end of
  bascule audit search --since 2026-01-31T12:00:00Z --until 2026-01-31T13:00:00Z --json
"""
_EXPORT_EXAMPLES = """\
  bascule audit export --output ledger.jsonl
  bascule audit export --since 30d --event call | jq -r .body
"""
_TIME = "a time (2026-01-31T12:00:00Z, in UTC), or how long ago (30s, 15m, 2h, 7d)"


def _filters(*left_out: str) -> tuple[Option, ...]:
    """Return the options of everything that entries can be searched by."""
    states = (*get_args(CallStatus), "running")
    now = SYSTEM_CLOCK.now
    known = {
        "since": option("--since", "TIME", f"not before {_TIME}", type=moment(now)),
        "until": option("--until", "TIME", "not after it", type=moment(now)),
        "server_id": _by("--server", "ID", "server_id", "of this server"),
        "tool_name": _by("--tool", "NAME", "tool_name", "of this tool, by its own name"),
        "task_id": _by("--task", "ID", "task_id", "of this task"),
        "caller": _by("--caller", "NAME", "caller", "of this caller"),
        "status": option("--status", None, "how the call stands", choices=states),
        "code": option("--code", "CODE", "its error code", choices=get_args(ErrorCode)),
        "event": option("--event", "KIND", "what happened, such as call", choices=EVENTS),
        "request_id": _by("--request", "ID", "request_id", "of this call"),
        "session_id": _by("--session", "ID", "session_id", "of this session"),
        "approval_id": _by("--approval", "ID", "approval_id", "under this approval"),
        "token_id": _by("--token-id", "ID", "token_id", "of this token, by its id"),
    }
    return tuple(made for name, made in known.items() if name not in left_out)


def _by(name: str, metavar: str, dest: str, text: str) -> Option:
    return option(name, metavar, text, dest=dest)


def fill(group: Parser) -> None:
    """Add the commands of ``audit``."""
    actions = actions_of(group)
    verb(actions, "tail", "list what happened last, each call once", tail, *_filters(),
         examples=_TAIL_EXAMPLES).takes(
        option("-n", "N", f"at most this many ({_LINES})", "--lines", type=count, default=_LINES),
        switch("--follow", "go on as more happens; calls when they have ended"),
    )  # fmt: skip
    verb(actions, "search", "find what happened, the newest first", search, *_filters(),
         examples=_SEARCH_EXAMPLES).takes(
        option("--limit", "N", f"at most this many ({_FOUND})", type=count, default=_FOUND),
        option("--before", "N", "only below this row", type=count),
    )  # fmt: skip
    verb(actions, "show", "show everything about one call", show_life).takes(
        option("request", "REQUEST_ID", "the call, as listed")
    )
    verb(actions, "export", "write every row as a line of JSON", export, *_filters(),
         examples=_EXPORT_EXAMPLES).takes(
        option("--output", "FILE", "a new file, instead of standard output"),
        option("--file", "LEDGER", "the rows of this ledger.db, such as one from a backup"),
    )  # fmt: skip
    signing = "sign what is written up to now, and add that to the anchors"
    verb(actions, "checkpoint", signing, checkpoint).takes(
        switch("--new-key", "sign with a new key from now on; the old one vouches for it")
    )


def _asked(arguments: argparse.Namespace) -> AuditFilters:
    given = vars(arguments)
    return AuditFilters(**{field.name: given.get(field.name) for field in fields(AuditFilters)})


def tail(arguments: argparse.Namespace) -> int:
    """Print the last entries, the newest last, and those that come."""
    return run_async(_followed(arguments) if arguments.follow else _tail(arguments))


async def _tail(arguments: argparse.Namespace) -> int:
    async with trail_of(arguments) as trail:
        page = await newest(trail, _asked(arguments), None, arguments.n)
    return show(arguments, page, entry_table(page.entries[::-1], none=_NOTHING))


async def _followed(arguments: argparse.Namespace) -> int:
    filters = _asked(arguments)
    async with client_of(arguments, "viewer") as client:
        page = await newest(client, filters, None, arguments.n)
        for entry in page.entries[::-1]:
            print_line(arguments, entry, entry_line(entry))
        async with aclosing(client.watch(filters, page.tip)) as entries:
            async for entry in entries:
                print_line(arguments, entry, entry_line(entry))
    return 0


def search(arguments: argparse.Namespace) -> int:
    """Print what was found, the newest first."""

    async def searching() -> int:
        async with trail_of(arguments) as trail:
            page = await newest(trail, _asked(arguments), arguments.before, arguments.limit)
        more = [] if page.next_before is None else [f"older ones: --before {page.next_before}"]
        table = entry_table(page.entries, none=_NOTHING)
        return show(arguments, page, table, notes=more)

    return run_async(searching())


def show_life(arguments: argparse.Namespace) -> int:
    """Print everything about one call."""
    request_id: str = arguments.request

    async def showing() -> int:
        async with trail_of(arguments) as trail:
            life = await trail.life(request_id)
        if life is None:
            complain([f"nothing is written about a call {shown(request_id)}"])
            return EXIT_FAILED
        return show(arguments, life, life_text(life))

    return run_async(showing())


# --- rows


def export(arguments: argparse.Namespace) -> int:
    """Write the rows, to a file that did not exist or to standard output."""
    if arguments.output is None and sys.stdout.isatty():
        arguments.usage("a terminal is no place for them: give --output FILE, or a pipe")
    return run_async(_export(arguments))


async def _export(arguments: argparse.Namespace) -> int:
    output: str | None = arguments.output
    async with _rows(arguments) as rows:
        if output is None:
            await _print(rows)
            return 0
        count = await _write(Path(output), rows)
    done = {"output": output, "rows": count}
    return show(arguments, done, notes=[f"{count} rows in {shown(output)}"])


@asynccontextmanager
async def _rows(arguments: argparse.Namespace) -> AsyncGenerator[AsyncGenerator[bytes, None]]:
    filters = _asked(arguments)
    if arguments.file is None and names_process(arguments):
        async with client_of(arguments, "viewer") as client, aclosing(client.export(filters)) as rows:
            yield rows
        return
    path = ledger_of(arguments) if arguments.file is None else Path(arguments.file)
    with file_trail(path) as reader:
        async with aclosing(reader.export(filters)) as rows:
            yield rows


async def _print(rows: AsyncGenerator[bytes, None]) -> None:
    decode = codecs.getincrementaldecoder("utf-8")().decode
    async for chunk in rows:
        sys.stdout.write(decode(chunk))
    sys.stdout.flush()


async def _write(path: Path, rows: AsyncGenerator[bytes, None]) -> int:
    """Write a new file, private to its owner; half of one is not left behind."""
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except FileExistsError:
        raise InvalidRecord([f"--output: {path} exists: name another, or remove it"]) from None
    except OSError as error:
        raise InvalidRecord([f"--output: {path}: {error.strerror}"]) from None
    written = 0
    try:
        with file:
            async for chunk in rows:
                file.write(chunk)
                written += chunk.count(b"\n")
    except BaseException:
        path.unlink()
        raise
    return written


def checkpoint(arguments: argparse.Namespace) -> int:
    """Have the process sign, and print the anchor."""

    async def signing() -> int:
        async with client_of(arguments, "admin") as client:
            made = await client.checkpoint(new_key=arguments.new_key)
        return show(arguments, made, made.anchor or "nothing is new since the last checkpoint")

    return run_async(signing())
