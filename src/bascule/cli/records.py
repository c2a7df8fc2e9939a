"""The verbs that every kind of record has: list, get, set, apply, remove, adopt.

One module for each kind says how its records look and how one is added. Every word of a record is
shown through ``render_safe``.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bascule.cli.batch import Batch, read_batch
from bascule.cli.command import show, shown
from bascule.cli.command_line import typed
from bascule.cli.endpoint import ask, verb
from bascule.cli.parser import DRY_RUN, STRICT, Actions, many, one_of, option, switch
from bascule.cli.table import render_table
from bascule.cli.values import nested, pair, revision
from bascule.client.http import ApiError
from bascule.client.registry import RegistryClient
from bascule.errors import InvalidRecord
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.kinds import COLLECTIONS, KEY_FIELDS, Kind
from bascule.policy.characters import render_safe
from bascule.wire.api.imports import Imported, ImportMode
from bascule.wire.api.proposals import ProposalList, ProposalShown
from bascule.wire.api.records import Beside, Plain, RecordWritten
from bascule.wire.record_toml import toml_of

Column: TypeAlias = Callable[[Plain], str]


class Noun(Struct, frozen=True):
    """A kind of record on the command line."""

    kind: Kind
    columns: Mapping[str, Column]

    @property
    def name(self) -> str:
        """Return what many of them are called."""
        return COLLECTIONS[self.kind]


def field(*path: str) -> Column:
    """Return the column of a field, by the names that lead to it."""
    *tables, name = path

    def cell(record: Plain) -> str:
        for table in tables:
            record = table_of(record, table)
        value = record.get(name) or ""
        words = map(str, value) if is_array(value) or is_object(value) else [str(value)]
        return shown(" ".join(words)) or "-"

    return cell


def table_of(record: Plain, name: str) -> Plain:
    """Return a table of a record; an empty one where it has none."""
    table = record.get(name)
    return {**table} if is_object(table) else {}


def words_of(value: object) -> list[str]:
    """Return a list of texts of a record; what is none is empty."""
    return [str(item) for item in value] if is_array(value) else []


KEY = option("id", "ID", "the id of the record")
EXPECTED = option(
    "--expected-revision", "N", "only if the record is still at this revision", type=revision
)
_FIELDS = option(
    "fields",
    "FIELD=VALUE",
    "a field by its dotted path; the value is JSON or text; null removes the field",
    nargs="+",
    type=pair,
)
_SET_EXAMPLE: Mapping[Kind, str] = {
    "server": "'allowed_tools=[\"read_*\"]' budgets.tool_timeout_ms=20000",
    "task": "mcp.read_only=true",
    "profile": "'tool_denylist=[\"delete_*\"]'",
    "backend": "enabled=false",
    "user": "'groups=[\"writers\"]' read_only=true",
}


def add_record_verbs(actions: Actions, noun: Noun) -> None:
    """Add what every kind can do."""
    kind, call = noun.kind, f"  bascule {noun.name}"
    verb(actions, "list", f"list the {noun.name}", partial(list_records, noun))
    showing = f"show one {kind} as a file of records has it"
    examples = f"{call} get ID > ID.toml\n{call} get ID --json\n"
    verb(actions, "get", showing, partial(get_record, noun), KEY, examples=examples)
    changing = f"change some fields of a {kind}; the others stay"
    examples = f"{call} set ID {_SET_EXAMPLE[kind]}\n{call} set ID FIELD=null\n"
    setting = verb(actions, "set", changing, partial(set_fields, noun), examples=examples)
    setting.takes(KEY, _FIELDS, STRICT, EXPECTED)
    _add_apply(actions, noun)
    verb(actions, "remove", f"remove a {kind}", partial(remove_record, noun), KEY, EXPECTED)
    adopting = f"take a {kind} over from the file that owns it"
    verb(actions, "adopt", adopting, partial(adopt_record, noun), KEY)


def _add_apply(actions: Actions, noun: Noun) -> None:
    call = f"  bascule {noun.name} apply"
    places = f"TOML or JSON: one {noun.kind}, or many records of any kind; a directory; or -"
    others = "also remove the other records of the same kinds, except those that a file owns"
    one = "only if the one record is still at this revision"
    examples = f"{call} {noun.kind}.toml\n{call} mcp.d --dry-run\n{call} - < records.json\n"
    summary = "add or replace the records in files: all in one revision, or none"
    verb(actions, "apply", summary, partial(apply_files, noun), examples=examples).takes(
        option("places", "FILE", places, nargs="+"),
        one_of(
            DRY_RUN,
            switch("--replace", others),
            option("--expected-revision", "N", one, type=revision),
        ),
        STRICT,
    )


# --- reading


def list_records(noun: Noun, arguments: argparse.Namespace) -> int:
    """Print all records of a kind."""
    listing = ask(arguments, lambda registry: registry.list(noun.kind))
    rows = [[cell(item) for cell in noun.columns.values()] for item in listing.items]
    return show(arguments, listing, render_table([*noun.columns], rows, none=f"no {noun.name}"))


def get_record(noun: Noun, arguments: argparse.Namespace) -> int:
    """Print one record, in a form that can be edited and applied."""
    record = ask(arguments, lambda registry: registry.get(noun.kind, arguments.id))
    text = "" if arguments.json else toml_of(record)
    return show(arguments, record, *_remarks(record), render_safe(text).rstrip("\n"))


def _remarks(record: Plain) -> list[str]:
    """Return what is known about a record besides itself, as comments."""
    known = {
        name: record[name] for name in Beside.__struct_fields__ if record.get(name) is not None
    }
    lines = [", ".join(f"{name} {value}" for name, value in known.items())]
    status = table_of(record, "status")
    if status:
        known_words = (status.get(name) for name in ("trouble", "starting", "last_error"))
        state = ", ".join(filter(None, (str(status.get("state")), *known_words)))
        lines.append(f"state {state}")
        lines += isolation_of(status)
    return [f"# {shown(line)}" for line in lines]


def isolation_of(status: Plain) -> list[str]:
    """Say how a server is isolated: the level in force, the one asked for, and why they differ."""
    standing = table_of(status, "sandbox")
    if not standing:
        return []
    asked, in_force, why = (str(standing.get(name)) for name in ("asked", "in_force", "why"))
    more = f" (asked for {asked})" if asked != in_force else ""
    return [f"isolation {in_force}{more}" + (f": {why}" if why else "")]


# --- writing


def set_fields(noun: Noun, arguments: argparse.Namespace) -> int:
    """Merge fields into a record."""
    return patch(noun.kind, arguments, nested(arguments.fields), strict=arguments.strict)


def patch(
    kind: Kind, arguments: argparse.Namespace, fields: JsonObject, *, strict: bool = False
) -> int:
    """Merge fields into the record of a command, and say so."""
    key, expected = arguments.id, arguments.expected_revision
    written = ask(
        arguments,
        lambda registry: registry.patch(
            kind, key, fields, expected_revision=expected, strict=strict
        ),
        "admin",
    )
    return say_written(kind, arguments, written, "changed")


def create(kind: Kind, arguments: argparse.Namespace, record: JsonObject) -> int:
    """Add a record, and say so."""
    strict: bool = arguments.strict
    written = ask(arguments, lambda registry: registry.create(kind, record, strict=strict), "admin")
    return say_written(kind, arguments, written, "added")


def given(**fields: JsonValue) -> dict[str, JsonValue]:
    """Return the fields of a record that a command line gives."""
    return {name: value for name, value in fields.items() if value not in (None, False, [], {})}


def adopt_record(noun: Noun, arguments: argparse.Namespace) -> int:
    """Take a record over from its file."""
    written = ask(arguments, lambda registry: registry.adopt(noun.kind, arguments.id), "admin")
    return say_written(noun.kind, arguments, written, "adopted")


def say_written(kind: Kind, arguments: argparse.Namespace, written: RecordWritten, did: str) -> int:
    """Say what a write did."""
    key = shown(str(written.record.get(KEY_FIELDS.get(kind, ""))))
    word = did if written.changed else "unchanged"
    text = f"{word} {kind} {key} (revision {written.revision})"
    return show(arguments, written, text, warnings=written.warnings)


def remove_record(noun: Noun, arguments: argparse.Namespace) -> int:
    """Delete a record, and say how to have it back."""
    expected: int | None = arguments.expected_revision
    removed = ask(
        arguments,
        lambda registry: registry.delete(noun.kind, arguments.id, expected_revision=expected),
        "admin",
    )
    key, before = shown(removed.deleted), removed.revision - 1
    back = typed(f"servers rollback {before} --only {noun.kind}/{key}", arguments)
    text = f"removed {noun.kind} {key} (revision {removed.revision})"
    return show(arguments, removed, text, notes=[f"to have it back: {back}"])


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
    return say_imported(arguments, ask(arguments, work, "admin"), batch)


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
    key = entry.data.get(KEY_FIELDS.get(entry.kind, ""), "") if is_object(entry.data) else ""
    written = ask(
        arguments,
        lambda registry: registry.put(
            entry.kind,
            str(key),
            entry.data,
            expected_revision=arguments.expected_revision,
            strict=arguments.strict,
        ),
        "admin",
    )
    return say_written(entry.kind, arguments, written, "applied")


def say_imported(
    arguments: argparse.Namespace, imported: Imported, batch: Batch | None = None
) -> int:
    """Say what an import changed, or would change."""
    found = imported.warnings
    warnings = found if batch is None else tuple(batch.located(warning) for warning in found)
    moved = "" if imported.diff.old != imported.diff.new else "unchanged: "
    wrote = f"{moved}revision {imported.revision}"
    note = "nothing was written" if imported.mode == "preview" else wrote
    text = render_safe(imported.diff.text)
    return show(
        arguments, replace(imported, warnings=warnings), text, notes=[note], warnings=warnings
    )


# --- what waits for an administrator


def add_accept_verb(actions: Actions, noun: Noun) -> None:
    """Add the command that lets in what waits, or lists it."""
    call = f"  bascule {noun.name} accept"
    summary = f"let in a {noun.kind} that gives a credential a new target, as an administrator"
    which = option("id", "ID", f"the {noun.kind}; without it, list what waits", nargs="?")
    run, examples = partial(accept, noun.kind), f"{call}\n{call} ID\n"
    verb(actions, "accept", summary, run, which, examples=examples)


def accept(kind: Kind, arguments: argparse.Namespace) -> int:
    """Let in what is proposed for a record, or list what is."""
    if arguments.id is None:
        return _list(kind, arguments)
    proposal, written = ask(arguments, partial(_accepted, kind=kind, key=arguments.id), "admin")
    if not arguments.json:
        for pair in proposal.pairs:
            print(f"accepted: {shown(pair.reference)} for {shown(pair.target)}")
        print(f"  (asked for by {shown(proposal.actor)})")
    return say_written(kind, arguments, written, "wrote")


async def _accepted(
    registry: RegistryClient, *, kind: Kind, key: str
) -> tuple[ProposalShown, RecordWritten]:
    waiting = {one.id: one for one in await registry.proposals() if one.kind == kind}
    if key not in waiting:
        known = ", ".join(waiting) or "none"
        raise InvalidRecord([f"there is no proposal for {kind} {key!r} (proposals: {known})"])
    found = waiting[key]
    return found, await registry.accept(kind, key, proposal=found.proposal)


def _list(kind: Kind, arguments: argparse.Namespace) -> int:
    every = ask(arguments, lambda registry: registry.proposals(), "admin")
    waiting = tuple(one for one in every if one.kind == kind)
    rows = [
        [shown(one.id), shown(one.actor), shown(pair.reference), shown(pair.target)]
        for one in waiting
        for pair in one.pairs
    ]
    header = (kind, "asked by", "credential", "for")
    return show(arguments, ProposalList(waiting), render_table(header, rows, none="nothing waits"))


# --- what tasks and profiles select

SELECTION = (
    many("--server", "ID", "a default server; repeatable", default=None),
    many("--may-use", "ID", "a server it may ask for; repeatable", default=None),
    many("--server-tag", "TAG", "only with this tag; repeatable", default=None),
    many("--allow-tool", "PATTERN", "only these tools; repeatable", default=None),
    many("--deny-tool", "PATTERN", "never these tools; repeatable", default=None),
    switch("--read-only", "only tools that are classed as read"),
)


def selection(arguments: argparse.Namespace) -> dict[str, JsonValue]:
    """Return the fields that the options give; what is not given does not narrow."""
    return given(
        default_server_ids=arguments.server,
        allowed_server_ids=_allowed(arguments),
        server_tags=arguments.server_tag,
        tool_allowlist=arguments.allow_tool,
        tool_denylist=arguments.deny_tool,
        read_only=arguments.read_only,
    )


def _allowed(arguments: argparse.Namespace) -> list[str] | None:
    """Return the servers it may have at most: those by default are among them."""
    if arguments.may_use is None:
        return None
    return [*dict.fromkeys([*(arguments.server or []), *arguments.may_use])]
