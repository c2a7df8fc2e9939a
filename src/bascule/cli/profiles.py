"""``bascule profiles``: the profiles of a running registry."""

from __future__ import annotations

import argparse

from bascule.cli.command import shown
from bascule.cli.edit import words_of
from bascule.cli.endpoint import verb
from bascule.cli.parser import STRICT, actions_of, option
from bascule.cli.records import SELECTION, Noun, add_record_verbs, create, given, selection
from bascule.model.json import is_array, is_object
from bascule.wire.api.records import Plain

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
        words_of(record.get("default_server_ids")),
        words_of(record.get("allowed_server_ids")),
        words_of(list(environments) if is_object(environments) else None),
        record.get("description"),
        record.get("owner"),
    )
    return [shown(" ".join(cell) if is_array(cell) else str(cell or "")) or "-" for cell in cells]


PROFILES = Noun(
    "profile", ("profile", "servers", "may use", "environments", "description", "file"), _row
)


def fill(group: argparse.ArgumentParser) -> None:
    """Add the commands of ``profiles``."""
    actions = actions_of(group)
    add_record_verbs(actions, PROFILES)
    verb(
        actions,
        "add",
        "add a profile",
        add,
        option("id", "NAME", "what it is called"),
        option("--description", "TEXT", "what it is for"),
        *(*SELECTION, STRICT),
        examples=_ADD_EXAMPLES,
    )


def add(arguments: argparse.Namespace) -> int:
    """Add a profile from the words of a command line."""
    described = given(description=arguments.description)
    return create("profile", arguments, {"name": arguments.id, **selection(arguments), **described})
