"""``bascule audit``: what happened, searched and followed, verified, exported, signed.

Where a process serves the data directory it is asked; its files are read where none does. A
verification reads the file itself, also beside a process: what is verified need not be trusted.
"""

from __future__ import annotations

import argparse
import codecs
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import BinaryIO, get_args

from msgspec.structs import fields

from bascule.app.data_dir import served_alone
from bascule.audit.checkpoints import last_line
from bascule.audit.kept_anchors import kept_anchors
from bascule.audit.search import EVENTS
from bascule.audit.verification import Verification
from bascule.audit.verification import verify as verify_ledger
from bascule.auth.keys import derived
from bascule.auth.server_key import KEY_NAME, server_key
from bascule.cli.audit_trail import (
    NothingThere,
    Trail,
    asks_process,
    client_of,
    data_of,
    file_trail,
    is_served,
    ledger_of,
    names_process,
    newest,
    trail_of,
)
from bascule.cli.audit_words import (
    entry_line,
    entry_lines,
    header_line,
    life_text,
    verification_text,
)
from bascule.cli.command import print_line, run_async, show, shown
from bascule.cli.configuration import read_settings
from bascule.cli.endpoint import NotServing, verb
from bascule.cli.parser import EXIT_FAILED, Option, Parser, actions_of, option, switch
from bascule.cli.values import count, moment
from bascule.errors import InvalidRecord
from bascule.model.code import CallStatus, ErrorCode
from bascule.wire.api.audit import AuditFilters, CheckpointMade

_LINES = 20
_FOUND = 50
#: How long what happens is followed with one token, where none is given.
_FOLLOWED_SECONDS = 86_400.0
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
_VERIFY_EXAMPLES = """\
  bascule audit verify --key ed25519:… --anchors /mnt/elsewhere/anchors.jsonl
  bascule audit verify --file ledger.jsonl --key ledger.pub --anchors anchors.jsonl

Exit code 1: something was changed, or is missing.
"""
_TIME = "a time (2026-01-31T12:00:00Z, in UTC), or how long ago (30s, 15m, 2h, 7d)"


def _filters() -> tuple[Option, ...]:
    """Return the options of everything that entries can be searched by."""
    states = (*get_args(CallStatus), "running")
    return (
        option("--since", "TIME", f"not before {_TIME}", type=moment),
        option("--until", "TIME", "not after it", type=moment),
        _by("--server", "ID", "server_id", "of this server"),
        _by("--tool", "NAME", "tool_name", "of this tool, by its own name"),
        _by("--task", "ID", "task_id", "of this task"),
        _by("--caller", "NAME", "caller", "of this caller"),
        _by("--person", "ID", "person", "of this person"),
        option("--status", None, "calls that stand so", choices=states),
        option("--code", "CODE", "calls that failed so", choices=get_args(ErrorCode)),
        option("--event", "KIND", "what happened, such as call", choices=EVENTS),
        _by("--request", "ID", "request_id", "of this call"),
        _by("--session", "ID", "session_id", "of this session"),
        _by("--approval", "ID", "approval_id", "under this approval"),
        _by("--token-id", "ID", "token_id", "of this token, by its id"),
        _by("--node", "NAME", "node", "that this node wrote"),
    )


def _by(name: str, metavar: str, dest: str, text: str) -> Option:
    return option(name, metavar, text, dest=dest)


def fill(group: Parser) -> None:
    """Add the commands of ``audit``."""
    actions = actions_of(group)
    verb(actions, "tail", "list what happened last, each call once", tail, *_filters(),
         examples=_TAIL_EXAMPLES).takes(
        option("--lines", "N", f"at most this many ({_LINES})", "-n", type=count, default=_LINES),
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
    verifying = "verify that nothing was changed, and say how far that is certain"
    verb(actions, "verify", verifying, verify, examples=_VERIFY_EXAMPLES).takes(
        option("--key", "KEY", "the public key that you kept: ed25519:…, or a file of it"),
        option("--anchors", "FILE", "the anchors that you kept, instead of those in the ledger"),
        option("--file", "LEDGER", "verify this ledger.db, or these exported rows"),
    )
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
        page = await newest(trail, _asked(arguments), None, arguments.lines)
    return show(arguments, page, entry_lines(page.entries[::-1], none=_NOTHING))


async def _followed(arguments: argparse.Namespace) -> int:
    filters = _asked(arguments)
    async with client_of(arguments, "viewer", seconds=_FOLLOWED_SECONDS) as client:
        page = await newest(client, filters, None, arguments.lines)
        if not arguments.json:
            print(header_line(), flush=True)
        for entry in page.entries[::-1]:
            print_line(arguments, entry, entry_line(entry))
        async with aclosing(client.watch(filters, page.tip)) as entries:
            async for entry in entries:
                print_line(arguments, entry, entry_line(entry))
    raise NotServing("the process has ended")


def search(arguments: argparse.Namespace) -> int:
    """Print what was found, the newest first."""

    async def searching() -> int:
        async with trail_of(arguments) as trail:
            page = await newest(trail, _asked(arguments), arguments.before, arguments.limit)
        more = [] if page.next_before is None else [f"older ones: --before {page.next_before}"]
        table = entry_lines(page.entries, none=_NOTHING)
        return show(arguments, page, table, notes=more)

    return run_async(searching())


def show_life(arguments: argparse.Namespace) -> int:
    """Print everything about one call."""
    request_id: str = arguments.request

    async def showing() -> int:
        async with trail_of(arguments) as trail:
            life = await trail.life(request_id)
        if life is None:
            raise NothingThere(f"nothing is written about a call {request_id}")
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
    async with AsyncExitStack() as stack:
        trail: Trail
        if arguments.file is None and asks_process(arguments):
            trail = await stack.enter_async_context(client_of(arguments, "viewer"))
        else:
            trail = stack.enter_context(file_trail(_file_of(arguments)))
        yield await stack.enter_async_context(aclosing(trail.export(_asked(arguments))))


def _file_of(arguments: argparse.Namespace) -> Path:
    return ledger_of(arguments) if arguments.file is None else Path(arguments.file)


async def _print(rows: AsyncGenerator[bytes, None]) -> None:
    decode = codecs.getincrementaldecoder("utf-8")().decode
    async for chunk in rows:
        sys.stdout.write(decode(chunk))
    sys.stdout.flush()


async def _write(path: Path, rows: AsyncGenerator[bytes, None]) -> int:
    written = 0
    with _new_file(path) as file:
        async for chunk in rows:
            file.write(chunk)
            written += chunk.count(b"\n")
    return written


@contextmanager
def _new_file(path: Path) -> Generator[BinaryIO]:
    """Make a file that is private to its owner; half of one is not left behind."""
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except FileExistsError:
        raise InvalidRecord([f"--output: {path} exists: name another, or remove it"]) from None
    except OSError as error:
        raise InvalidRecord([f"--output: {path}: {error.strerror}"]) from None
    try:
        with file:
            yield file
    except BaseException:
        path.unlink()
        raise


def verify(arguments: argparse.Namespace) -> int:
    """Print what a verification found; exit code 1 if something was changed."""
    own = any((arguments.file, arguments.key, arguments.anchors))
    if own and arguments.api_url:
        arguments.usage("a process verifies its own ledger: leave out --file, --key and --anchors")
    there = not own and asks_process(arguments)
    found = run_async(_verified_there(arguments)) if there else _verified_here(arguments)
    show(arguments, found, verification_text(found))
    return 0 if found.ok else EXIT_FAILED


async def _verified_there(arguments: argparse.Namespace) -> Verification:
    async with client_of(arguments, "viewer") as client:
        return await client.verify()


def _verified_here(arguments: argparse.Namespace) -> Verification:
    key: str | None = arguments.key
    if key is not None and Path(key).is_file():
        key = _content("--key", key).decode(errors="replace")
    return verify_ledger(_file_of(arguments), _anchors(arguments), key)


def _anchors(arguments: argparse.Namespace) -> list[bytes] | None:
    """Return the anchors that were named, else those of the data directory's own ledger."""
    if arguments.anchors is not None:
        return _content("--anchors", arguments.anchors).splitlines()
    if arguments.file is not None:
        return None
    return kept_anchors(read_settings(arguments).ledger, data_of(arguments))


def _content(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidRecord([f"{name}: {path}: {error.strerror}"]) from None


def checkpoint(arguments: argparse.Namespace) -> int:
    """Sign, and print the anchor."""
    there = names_process(arguments) or is_served(data_of(arguments))
    made = run_async(_signed_there(arguments) if there else _signed_here(arguments))
    return show(arguments, made, made.anchor or "nothing is new since the last checkpoint")


async def _signed_there(arguments: argparse.Namespace) -> CheckpointMade:
    async with client_of(arguments, "admin") as client:
        return await client.checkpoint(new_key=arguments.new_key)


async def _signed_here(arguments: argparse.Namespace) -> CheckpointMade:
    """Do what a process does at its start: take in what others left, and sign it."""
    # Only this needs the ledger itself.
    from bascule.app.backing import open_backing  # noqa: PLC0415
    from bascule.app.stores import open_ledger  # noqa: PLC0415

    settings, data = read_settings(arguments), ledger_of(arguments).parent
    key = derived(server_key(data / KEY_NAME), "journal")
    with served_alone(data):
        async with open_backing(settings) as backing, open_ledger(settings, backing, key) as ledger:
            if ledger is None:
                raise NothingThere("ledger.enabled is false: nothing is written, nothing is signed")
            line = await ledger.checkpoint(new_key=arguments.new_key)
            line = line or await ledger.database.read(last_line)
    return CheckpointMade(None if line is None else line.decode())
