"""The verbs that every kind of record has: list, get, set, apply, remove, adopt.

Below: ``endpoint.py`` finds the process, the registry's client asks it, ``batch.py`` reads files.
Above: one module for each kind says how its records look and how one is added. Every word of a
record is shown through ``render_safe``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bascule.cli.batch import Batch, read_batch
from bascule.cli.command import print_json, shown, warn
from bascule.cli.command_line import typed
from bascule.cli.endpoint import ask, verb
from bascule.cli.parser import Actions, add_strict
from bascule.cli.table import render_table
from bascule.cli.values import nested, pair, revision
from bascule.client.http import ApiError
from bascule.client.registry import RegistryClient
from bascule.errors import InvalidRecord
from bascule.model.json import is_array, is_object
from bascule.model.kinds import KEY_FIELDS, Kind
from bascule.policy.characters import render_safe
from bascule.wire.api.imports import Imported, ImportMode
from bascule.wire.api.proposals import ProposalList, ProposalShown
from bascule.wire.api.records import Beside, Plain, RecordWritten, own_fields
from bascule.wire.task_config import typed_form


class Noun(Struct, frozen=True):
    """A kind of record on the command line."""

    kind: Kind
    name: str
    key_field: str
    header: tuple[str, ...]
    row: Callable[[Plain], list[str]]


def add_record_verbs(actions: Actions, noun: Noun) -> None:
    """Add what every kind can do."""
    call = f"  bascule {noun.name}"
    verb(actions, "list", f"list the {noun.name}", partial(list_records, noun))
    one = verb(
        actions,
        "get",
        f"show one {noun.kind} in the format of a record file",
        partial(get_record, noun),
        examples=f"{call} get ID > ID.toml\n{call} get ID --json\n",
    )
    _add_key(one)
    setting = verb(
        actions,
        "set",
        f"change some fields of a {noun.kind}; the others stay",
        partial(set_fields, noun),
        examples=f"{call} set ID {_SET_EXAMPLE[noun.kind]}\n{call} set ID FIELD=null\n",
    )
    _add_key(setting)
    setting.add_argument(
        "fields",
        metavar="FIELD=VALUE",
        nargs="+",
        type=pair,
        help="a field by its dotted path; the value is JSON or text; null removes the field",
    )
    add_strict(setting)
    add_expected(setting)
    _add_apply(actions, noun)
    ending = verb(actions, "remove", f"remove a {noun.kind}", partial(remove_record, noun))
    _add_key(ending)
    add_expected(ending)
    taking = verb(
        actions,
        "adopt",
        f"take a {noun.kind} over from the file that owns it",
        partial(adopt_record, noun),
    )
    _add_key(taking)


_SET_EXAMPLE: Mapping[Kind, str] = {
    "server": "'allowed_tools=[\"read_*\"]' budgets.tool_timeout_ms=20000",
    "task": "mcp.read_only=true",
    "profile": "'tool_denylist=[\"delete_*\"]'",
    "backend": "enabled=false",
}


def _add_apply(actions: Actions, noun: Noun) -> None:
    call = f"  bascule {noun.name} apply"
    parser = verb(
        actions,
        "apply",
        "add or replace the records in files: all in one revision, or none",
        partial(apply_files, noun),
        examples=f"{call} {noun.kind}.toml\n{call} mcp.d --dry-run\n{call} - < records.json\n",
    )
    parser.add_argument(
        "places",
        metavar="FILE",
        nargs="+",
        help=f"TOML or JSON: one {noun.kind}, or many records of any kind; a directory; or -",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="print what would change, and exit")
    how.add_argument(
        "--replace",
        action="store_true",
        help="also remove the other records of the same kinds, except those that a file owns",
    )
    how.add_argument(
        "--expected-revision",
        metavar="N",
        type=revision,
        help="only if the one record is still at this revision",
    )
    add_strict(parser)


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the id of the record")


def add_expected(parser: argparse.ArgumentParser) -> None:
    """Add the condition of a write."""
    parser.add_argument(
        "--expected-revision",
        metavar="N",
        type=revision,
        help="only if the record is still at this revision",
    )


# --- reading


def list_records(noun: Noun, arguments: argparse.Namespace) -> int:
    """Print all records of a kind."""
    listing = ask(arguments, lambda registry: registry.list(noun.kind))
    if arguments.json:
        print_json(listing)
    else:
        print_rows(noun.header, [noun.row(item) for item in listing.items], f"no {noun.name}")
    return 0


def print_rows(header: Sequence[str], rows: Sequence[Sequence[str]], none: str) -> None:
    """Print a table, or that there is nothing to put in one."""
    print(render_table(header, rows) if rows else none)


def get_record(noun: Noun, arguments: argparse.Namespace) -> int:
    """Print one record, in a form that can be edited and applied."""
    record = ask(arguments, lambda registry: registry.get(noun.kind, arguments.id))
    if arguments.json:
        print_json(record)
    else:
        print("\n".join(_remarks(record)))
        print(render_safe(_toml(record)), end="")
    return 0


def _remarks(record: Plain) -> list[str]:
    """Return what is known about a record besides itself, as comments."""
    known = {
        name: record[name] for name in Beside.__struct_fields__ if record.get(name) is not None
    }
    lines = [", ".join(f"{name} {value}" for name, value in known.items())]
    status = record.get("status")
    if is_object(status):
        known_words = (status.get(name) for name in ("trouble", "starting", "last_error"))
        state = ", ".join(filter(None, (str(status.get("state")), *known_words)))
        lines.append(f"state {state}")
    return [f"# {shown(line)}" for line in lines]


def _toml(record: Plain) -> str:
    import tomli_w  # noqa: PLC0415 - only this command writes TOML

    return tomli_w.dumps(without_nulls({"version": 1} | typed_form(own_fields(record))))


def without_nulls(value: Any) -> Any:
    """Return plain values without what is null, which TOML has no word for."""
    if is_object(value):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if is_array(value) else value


# --- writing


def set_fields(noun: Noun, arguments: argparse.Namespace) -> int:
    """Merge fields into a record."""
    return patch(noun, arguments, nested(arguments.fields), strict=arguments.strict)


def patch(
    noun: Noun, arguments: argparse.Namespace, fields: Mapping[str, Any], *, strict: bool = False
) -> int:
    """Merge fields into the record of a command, and say so."""
    written = ask(
        arguments,
        lambda registry: registry.patch(
            noun.kind,
            arguments.id,
            fields,
            expected_revision=arguments.expected_revision,
            strict=strict,
        ),
    )
    return say_written(noun, arguments, written, "changed")


def create(noun: Noun, arguments: argparse.Namespace, record: Mapping[str, Any]) -> int:
    """Add a record, and say so."""
    written = ask(
        arguments, lambda registry: registry.create(noun.kind, record, strict=arguments.strict)
    )
    return say_written(noun, arguments, written, "added")


def adopt_record(noun: Noun, arguments: argparse.Namespace) -> int:
    """Take a record over from its file."""
    written = ask(arguments, lambda registry: registry.adopt(noun.kind, arguments.id))
    return say_written(noun, arguments, written, "adopted")


def say_written(
    noun: Noun, arguments: argparse.Namespace, written: RecordWritten, word: str
) -> int:
    """Say what a write did."""
    if arguments.json:
        print_json(written)
    else:
        key = shown(str(written.record.get(noun.key_field)))
        word = word if written.changed else "unchanged"
        print(f"{word} {noun.kind} {key} (revision {written.revision})")
        warn(written.warnings)
    return 0


def remove_record(noun: Noun, arguments: argparse.Namespace) -> int:
    """Delete a record, and say how to have it back."""
    removed = ask(
        arguments,
        lambda registry: registry.delete(
            noun.kind, arguments.id, expected_revision=arguments.expected_revision
        ),
    )
    if arguments.json:
        print_json(removed)
        return 0
    key, before = shown(removed.deleted), removed.revision - 1
    print(f"removed {noun.kind} {key} (revision {removed.revision})")
    back = typed(f"servers rollback {before} --only {noun.kind}/{key}", arguments)
    print(f"to have it back: {back}", file=sys.stderr)
    return 0


# --- files


def apply_files(noun: Noun, arguments: argparse.Namespace) -> int:
    """Add or replace the records of files."""
    batch = read_batch(arguments.places, noun.kind)
    if arguments.expected_revision is not None:
        return _apply_one(batch, arguments)
    mode: ImportMode = "replace" if arguments.replace else "upsert"
    if arguments.dry_run:
        mode = "preview"
    work = partial(_sent, batch=batch, mode=mode, strict=arguments.strict)
    return say_imported(arguments, ask(arguments, work), batch)


async def _sent(
    registry: RegistryClient, *, batch: Batch, mode: ImportMode, strict: bool
) -> Imported:
    work = registry.take_in(batch.body(), mode, whole=True, strict=strict)
    return await located(batch, work)


async def located(batch: Batch, work: Awaitable[Imported]) -> Imported:
    """Wait for an import; its problems are told of the files that have them."""
    try:
        return await work
    except ApiError as error:
        problems = error.details.get("problems")
        if error.code != InvalidRecord.code or not is_array(problems):
            raise
        raise InvalidRecord([batch.located(str(problem)) for problem in problems]) from error


def _apply_one(batch: Batch, arguments: argparse.Namespace) -> int:
    """Replace one record if it is still what its reader saw."""
    if len(batch.entries) != 1:
        arguments.usage(f"--expected-revision is for one record, not {len(batch.entries)}")
    [entry] = batch.entries
    noun = Noun(entry.kind, "", KEY_FIELDS.get(entry.kind, ""), (), lambda _: [])
    key = entry.data.get(noun.key_field, "") if is_object(entry.data) else ""
    written = ask(
        arguments,
        lambda registry: registry.put(
            entry.kind,
            str(key),
            entry.data,
            expected_revision=arguments.expected_revision,
            strict=arguments.strict,
        ),
    )
    return say_written(noun, arguments, written, "applied")


def say_imported(
    arguments: argparse.Namespace, imported: Imported, batch: Batch | None = None
) -> int:
    """Say what an import changed, or would change."""
    found = imported.warnings
    warnings = found if batch is None else tuple(batch.located(warning) for warning in found)
    if arguments.json:
        print_json(replace(imported, warnings=warnings))
        return 0
    print(render_safe(imported.diff.text))
    if imported.mode == "preview":
        print("nothing was written", file=sys.stderr)
    else:
        moved = imported.diff.old != imported.diff.new
        print(f"{'' if moved else 'unchanged: '}revision {imported.revision}", file=sys.stderr)
    warn(warnings)
    return 0


def add_accept_verb(actions: Actions, noun: Noun) -> None:
    """Add the command that lets in what waits, or lists it."""
    call = f"  bascule {noun.name} accept"
    parser = verb(
        actions,
        "accept",
        f"accept a {noun.kind} that sends a credential to a new target (administrators)",
        partial(accept, noun),
        examples=f"{call}\n{call} ID\n",
    )
    parser.add_argument(
        "id", metavar="ID", nargs="?", help=f"the {noun.kind}; without it, list what waits"
    )


def accept(noun: Noun, arguments: argparse.Namespace) -> int:
    """Let in what is proposed for a record, or list what is."""
    if arguments.id is None:
        return _list(noun, arguments)
    proposal, written = ask(arguments, partial(_accepted, noun=noun, key=arguments.id))
    if not arguments.json:
        for pair in proposal.pairs:
            print(f"accepted: {shown(pair.reference)} for {shown(pair.target)}")
        print(f"  (asked for by {shown(proposal.actor)})")
    return say_written(noun, arguments, written, "wrote")


async def _accepted(
    registry: RegistryClient, *, noun: Noun, key: str
) -> tuple[ProposalShown, RecordWritten]:
    waiting = {one.id: one for one in await registry.proposals() if one.kind == noun.kind}
    if key not in waiting:
        known = ", ".join(waiting) or "nothing"
        raise InvalidRecord([f"nothing is proposed for {noun.kind} {key!r} (waiting: {known})"])
    found = waiting[key]
    return found, await registry.accept(noun.kind, key, proposal=found.proposal)


def _list(noun: Noun, arguments: argparse.Namespace) -> int:
    every = ask(arguments, lambda registry: registry.proposals())
    waiting = [one for one in every if one.kind == noun.kind]
    if arguments.json:
        print_json(ProposalList(tuple(waiting)))
        return 0
    rows = [
        [shown(one.id), shown(one.actor), shown(pair.reference), shown(pair.target)]
        for one in waiting
        for pair in one.pairs
    ]
    print_rows((noun.kind, "asked by", "credential", "for"), rows, "nothing waits")
    return 0


def add_selection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    option = parser.add_argument
    option("--server", action="append", metavar="ID", help="a default server; repeatable")
    option("--may-use", action="append", metavar="ID", help="a server it may ask for; repeatable")
    option("--server-tag", action="append", metavar="TAG", help="only with this tag; repeatable")
    option("--allow-tool", action="append", metavar="PATTERN", help="only these tools; repeatable")
    option("--deny-tool", action="append", metavar="PATTERN", help="never these tools; repeatable")
    option("--read-only", action="store_true", help="only tools that are classed as read")


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
