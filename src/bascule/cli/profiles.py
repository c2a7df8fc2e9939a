"""``bascule profiles``: the profiles of a running registry.

Below: ``records.py``. Above: ``main``.
"""

from __future__ import annotations

import argparse

from bascule.cli.command import shown
from bascule.cli.edit import words_of
from bascule.cli.endpoint import verb
from bascule.cli.parser import (
    actions_of,
    add_strict,
)
from bascule.cli.records import Noun, add_record_verbs, add_selection_options, create, selection
from bascule.model.json import is_array, is_object
from bascule.wire.api.records import Plain

_ADD_EXAMPLES = """\
  bascule profiles add support --server tickets --may-use wiki --deny-tool 'delete_*'
  bascule tasks add helpdesk --profile support

A list that is not given does not narrow. Rules for a single environment are a table in a file
(apply) or a field: bascule profiles set support environments.prod.read_only=true
"""


def _row(record: Plain) -> list[str]:
    environments = record.get("environments")
    cells = (
        record.get("name"),
        words_of(record.get("default_server_ids")),
        words_of(record.get("allowed_server_ids")),
        words_of(list(environments) if is_object(environments) else None),
        record.get("description"),
        record.get("owner"),
    )
    return [shown(" ".join(cell) if is_array(cell) else str(cell or "")) or "-" for cell in cells]


PROFILES = Noun(
    "profile",
    "profiles",
    "name",
    ("profile", "servers", "may use", "environments", "description", "file"),
    _row,
)


def fill(group: argparse.ArgumentParser) -> None:
    """Add the commands of ``profiles``."""
    actions = actions_of(group)
    add_record_verbs(actions, PROFILES)
    parser = verb(actions, "add", "add a profile", add, examples=_ADD_EXAMPLES)
    parser.add_argument("id", metavar="NAME", help="its name")
    parser.add_argument("--description", metavar="TEXT", help="what it is for")
    add_selection_options(parser)
    add_strict(parser)


def add(arguments: argparse.Namespace) -> int:
    """Add a profile from the words of a command line."""
    record = {"name": arguments.id, **selection(arguments)}
    if arguments.description is not None:
        record["description"] = arguments.description
    return create(PROFILES, arguments, record)
