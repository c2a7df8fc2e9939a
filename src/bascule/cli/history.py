"""The registry's past on the command line: history, diff, rollback.

The revision is one for all kinds, so these are about the whole registry. Below: ``endpoint.py``.
Above: ``servers``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable

from bascule.cli.command import print_json, shown
from bascule.cli.endpoint import ask, verb
from bascule.cli.parser import (
    Actions,
)
from bascule.cli.records import print_rows
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
    listing = verb(actions, "history", "list the changes of the registry, newest first", history)
    listing.add_argument(
        "--limit", type=int, default=_PAGE, metavar="N", help=f"at most this many ({_PAGE})"
    )
    listing.add_argument("--before", type=revision, metavar="N", help="only below this revision")
    two = verb(
        actions,
        "diff",
        "compare two revisions: records, and what tasks may use",
        diff,
        examples=_DIFF_EXAMPLES,
    )
    two.add_argument("old", metavar="FROM", type=revision, help="a revision")
    two.add_argument("new", metavar="TO", type=revision, nargs="?", help="the other (default: now)")
    two.add_argument("--environment", metavar="NAME", help="the environment for profiles")
    back = verb(
        actions,
        "rollback",
        "restore the records of an earlier revision, as a new revision",
        rollback,
        examples=_ROLLBACK_EXAMPLES,
    )
    back.add_argument("revision", metavar="REVISION", type=revision, help="the revision to restore")
    back.add_argument(
        "--only",
        action="append",
        type=_record_name,
        metavar="KIND/ID",
        help="only this record; may be repeated",
    )
    back.add_argument("--note", default="", metavar="TEXT", help="why, for the history")


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
    if arguments.json:
        print_json(page)
    else:
        rows = [_row(change) for change in page.changes]
        print_rows(("revision", "at", "who", "what", "note"), rows, "no changes")
        if page.next_before is not None:
            print(f"older ones: --before {page.next_before}")
    return 0


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
    found = ask(
        arguments,
        lambda registry: registry.diff(
            arguments.old, arguments.new, environment=arguments.environment
        ),
    )
    if arguments.json:
        print_json(found)
    else:
        print(render_safe(found.text))
    return 0


def rollback(arguments: argparse.Namespace) -> int:
    """Go back, as a new revision."""
    done = ask(
        arguments,
        lambda registry: registry.rollback(
            arguments.revision, only=arguments.only, note=arguments.note
        ),
    )
    if arguments.json:
        print_json(done)
    else:
        print(render_safe(done.diff.text))
        moved = done.diff.old != done.diff.new
        what = "this is" if moved else "nothing had changed, it stays"
        print(f"as at revision {arguments.revision}; {what} revision {done.revision}")
    return 0
