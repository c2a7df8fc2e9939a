"""``bascule backends``: the upstreams that answer for models, of a running registry."""

from __future__ import annotations

import argparse

from bascule.cli.command import shown
from bascule.cli.endpoint import verb
from bascule.cli.parser import INSECURE, STRICT, actions_of, many, option, switch
from bascule.cli.records import Noun, add_accept_verb, add_record_verbs, create, given
from bascule.cli.table import paint
from bascule.cli.values import pair
from bascule.model.json import is_array
from bascule.wire.api.records import Plain

_ADD_EXAMPLES = """\
  bascule backends add main --base-url https://models.example.com/v1 --key-ref '${ENV:MODEL_KEY}'
  bascule backends add local --base-url http://127.0.0.1:8080/v1 --model small --model large
"""


def _row(record: Plain) -> list[str]:
    models = record.get("models")
    return [
        shown(str(record.get("name"))),
        paint("off", "dim") if record.get("enabled") is False else paint("on", "green"),
        shown(str(record.get("base_url"))),
        shown(" ".join(map(str, models))) if is_array(models) and models else "-",
        shown(str(record.get("key_ref") or "-")),
        shown(str(record.get("owner") or "-")),
    ]


BACKENDS = Noun("backend", ("backend", "state", "at", "models", "key", "file"), _row)


def fill(group: argparse.ArgumentParser) -> None:
    """Add the commands of ``backends``."""
    actions = actions_of(group)
    add_record_verbs(actions, BACKENDS)
    add_accept_verb(actions, BACKENDS)
    verb(
        actions,
        "add",
        "add a backend",
        add,
        option("id", "NAME", "what it is called"),
        option("--base-url", "URL", "where it is, up to and with /v1", required=True),
        option("--key-ref", "REF", "where its key is: ${ENV:X}, file://…, secret://…"),
        many("--model", "NAME", "a model it answers for; repeatable"),
        many("--header", "KEY=VALUE", "a header; repeatable", type=pair),
        INSECURE,
        switch("--disabled", "add it switched off"),
        STRICT,
        examples=_ADD_EXAMPLES,
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
