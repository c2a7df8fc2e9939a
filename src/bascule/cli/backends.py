"""``bascule backends``: the upstreams that answer for models, of a running registry."""

from __future__ import annotations

import argparse

from bascule.cli.endpoint import verb
from bascule.cli.parser import INSECURE, STRICT, Parser, actions_of, many, option, switch
from bascule.cli.records import Noun, add_accept_verb, add_record_verbs, create, field, given
from bascule.cli.table import on_or_off
from bascule.cli.values import pair

_ADD_EXAMPLES = """\
  bascule backends add main --base-url https://models.example.com/v1 --key-ref '${ENV:MODEL_KEY}'
  bascule backends add local --base-url http://127.0.0.1:8080/v1 --model small --model large
"""


BACKENDS = Noun(
    "backend",
    {
        "backend": field("name"),
        "state": lambda record: on_or_off(on=record.get("enabled") is not False),
        "at": field("base_url"),
        "models": field("models"),
        "key": field("key_ref"),
        "file": field("owner"),
    },
)


def fill(group: Parser) -> None:
    """Add the commands of ``backends``."""
    actions = actions_of(group)
    add_record_verbs(actions, BACKENDS)
    add_accept_verb(actions, BACKENDS)
    verb(actions, "add", "add a backend", add, examples=_ADD_EXAMPLES).takes(
        option("id", "NAME", "its name"),
        option("--base-url", "URL", "its address, up to and including /v1", required=True),
        option("--key-ref", "REF", "where its key is: ${ENV:X}, file://…, secret://…"),
        many("--model", "NAME", "a model it answers for; repeatable"),
        many("--header", "KEY=VALUE", "a header; repeatable", type=pair),
        INSECURE,
        switch("--disabled", "add it disabled"),
        STRICT,
    )


def add(arguments: argparse.Namespace) -> int:
    """Add a backend from the words of a command line."""
    more = given(
        models=arguments.model,
        headers=dict(arguments.header),
        insecure=arguments.insecure,
        key_ref=arguments.key_ref,
    )
    record = {"name": arguments.id, "base_url": arguments.base_url, **more}
    return create("backend", arguments, {**record, "enabled": not arguments.disabled})
