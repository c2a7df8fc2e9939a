"""``bascule profiles``: the profiles of a running registry."""

from __future__ import annotations

import argparse

from bascule.cli.endpoint import verb
from bascule.cli.parser import STRICT, Parser, actions_of, option
from bascule.cli.records import SELECTION, Noun, add_record_verbs, create, field, given, selection

_ADD_EXAMPLES = """\
  bascule profiles add support --server tickets --may-use wiki --deny-tool 'delete_*'
  bascule tasks add helpdesk --profile support

A list that is not given does not narrow. Rules for a single environment are a table in a file
(apply) or a field: bascule profiles set support environments.prod.read_only=true
"""


PROFILES = Noun(
    "profile",
    {
        "profile": field("name"),
        "servers": field("default_server_ids"),
        "may use": field("allowed_server_ids"),
        "environments": field("environments"),
        "description": field("description"),
        "file": field("owner"),
    },
)


def fill(group: Parser) -> None:
    """Add the commands of ``profiles``."""
    actions = actions_of(group)
    add_record_verbs(actions, PROFILES)
    verb(actions, "add", "add a profile", add, examples=_ADD_EXAMPLES).takes(
        option("id", "NAME", "its name"),
        option("--description", "TEXT", "what it is for"),
        *(*SELECTION, STRICT),
    )


def add(arguments: argparse.Namespace) -> int:
    """Add a profile from the words of a command line."""
    described = given(description=arguments.description)
    return create("profile", arguments, {"name": arguments.id, **selection(arguments), **described})
