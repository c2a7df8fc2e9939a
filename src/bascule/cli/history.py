"""The registry's past on the command line: history, diff, rollback.

The revision is one for all kinds, so these are about the whole registry.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable

from bascule.cli.command import show, shown
from bascule.cli.endpoint import ask, verb
from bascule.cli.parser import ENVIRONMENT, Actions, many, option
from bascule.cli.table import render_table
from bascule.cli.values import revision
from bascule.model.kinds import KINDS, Kind
from bascule.policy.characters import render_safe
from bascule.wire.api.history import HistoryEntry, RecordName

_PAGE = 20
_DIFF_EXAMPLES = """\
  bascule servers diff 12          # what changed since revision 12
  bascule servers diff 12 15
"""
_ROLLBACK_EXAMPLES = """\
  bascule servers rollback 12
  bascule servers rollback 12 --only server/files --note 'the new one does not start'
"""


def add_past_verbs(actions: Actions) -> None:
    """Add the commands."""
    verb(actions, "history", "list the changes of the registry, newest first", history).takes(
        option("--limit", "N", f"at most this many ({_PAGE})", type=int, default=_PAGE),
        option("--before", "N", "only below this revision", type=revision),
    )
    comparing = "compare two revisions: records, and what tasks may use"
    verb(actions, "diff", comparing, diff, examples=_DIFF_EXAMPLES).takes(
        option("old", "FROM", "a revision", type=revision),
        option("new", "TO", "the other (default: now)", type=revision, nargs="?"),
        ENVIRONMENT,
    )
    only = "only this record; may be repeated"
    going_back = "restore the records of an earlier revision, as a new revision"
    verb(actions, "rollback", going_back, rollback, examples=_ROLLBACK_EXAMPLES).takes(
        option("revision", "REVISION", "the revision to restore", type=revision),
        many("--only", "KIND/ID", only, type=_record_name, default=None),
        option("--note", "TEXT", "why, for the history", default=""),
    )


def _record_name(text: str) -> tuple[Kind, str]:
    name, _, key = text.partition("/")
    for kind in KINDS:
        if kind == name and key:
            return kind, key
    raise argparse.ArgumentTypeError(f"{text}: must be KIND/ID; kinds: {', '.join(KINDS)}")


def history(arguments: argparse.Namespace) -> int:
    """Print the changes."""
    limit: int = arguments.limit
    page = ask(arguments, lambda registry: registry.history(limit=limit, before=arguments.before))
    rows = [_row(change) for change in page.changes]
    table = render_table(("revision", "at", "who", "what", "note"), rows, none="no changes")
    more = [] if page.next_before is None else [f"older ones: --before {page.next_before}"]
    return show(arguments, page, table, *more)


def _row(change: HistoryEntry) -> list[str]:
    what = [*_signed("+", change.created), *_changed(change), *_signed("-", change.deletes)]
    at = re.sub(r"\.\d+Z$", "Z", change.at or "-")  # to the second is enough for people
    texts = (at, change.actor, " ".join(what), change.note)
    return [str(change.revision), *(shown(text) for text in texts)]


def _signed(sign: str, names: Iterable[RecordName]) -> list[str]:
    return [f"{sign}{name.kind}/{name.id}" for name in names]


def _changed(change: HistoryEntry) -> list[str]:
    """Return the records that were there before, each with the fields that changed."""
    return [
        f"~{one.kind}/{one.id}{_fields(change, one)}"
        for one in change.upserts
        if one not in change.created
    ]


def _fields(change: HistoryEntry, record: RecordName) -> str:
    names = [one.field for one in change.fields if (one.kind, one.id) == (record.kind, record.id)]
    return f" ({', '.join(names)})" if names else ""


def diff(arguments: argparse.Namespace) -> int:
    """Print what differs between two revisions."""
    old, new, environment = arguments.old, arguments.new, arguments.environment
    found = ask(arguments, lambda registry: registry.diff(old, new, environment=environment))
    return show(arguments, found, render_safe(found.text))


def rollback(arguments: argparse.Namespace) -> int:
    """Go back, as a new revision."""
    to, only, note = arguments.revision, arguments.only, arguments.note
    done = ask(arguments, lambda registry: registry.rollback(to, only=only, note=note), "admin")
    moved = done.diff.old != done.diff.new
    what = "this is" if moved else "nothing had changed, it stays"
    text = f"as at revision {to}; {what} revision {done.revision}"
    return show(arguments, done, render_safe(done.diff.text), text)
