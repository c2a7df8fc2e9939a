"""``bascule profiles``: the profiles of a running registry.

Below: ``records.py``. Above: ``main``.
"""

from __future__ import annotations

import argparse
from typing import Any

from bascule.cli.command import shown
from bascule.cli.records import Noun, add_record_verbs, create, verb
from bascule.cli.selection import add_selection_options, selection
from bascule.client.registry import Plain
from bascule.model.json import is_array, is_object

_ADD_EXAMPLES = """\
  bascule profiles add support --server tickets --may-use wiki --deny-tool 'delete_*'
  bascule tasks add helpdesk --profile support

A list that is not given does not narrow. What holds in one environment alone is a table of a file
(apply) or a field: bascule profiles set support environments.prod.read_only=true
"""


def _row(record: Plain) -> list[str]:
    environments = record.get("environments")
    cells = (
        record.get("name"),
        _joined(record.get("default_server_ids")),
        _joined(record.get("allowed_server_ids")),
        _joined(list(environments) if is_object(environments) else None),
        record.get("description"),
        record.get("owner"),
    )
    return [shown(str(cell or "-")) for cell in cells]


def _joined(value: Any) -> str:
    return " ".join(map(str, value)) if is_array(value) else ""


PROFILES = Noun(
    "profile",
    "profiles",
    "name",
    ("profile", "servers", "may use", "environments", "description", "file"),
    _row,
)


def fill(group: argparse.ArgumentParser) -> None:
    """Add the commands of ``profiles``."""
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_record_verbs(actions, PROFILES)
    parser = verb(actions, "add", "add a profile", add, examples=_ADD_EXAMPLES)
    parser.add_argument("id", metavar="NAME", help="what it is called")
    parser.add_argument("--description", metavar="TEXT", help="what it is for")
    add_selection_options(parser)
    parser.add_argument("--strict", action="store_true", help="refuse what is only a warning")


def add(arguments: argparse.Namespace) -> int:
    """Add a profile from the words of a command line."""
    record = {"name": arguments.id, **selection(arguments)}
    if arguments.description is not None:
        record["description"] = arguments.description
    return create(PROFILES, arguments, record)
