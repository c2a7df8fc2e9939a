"""``bascule backends``: the upstreams that answer for models, of a running registry.

Below: ``records.py``. Above: ``main``.
"""

from __future__ import annotations

import argparse
from typing import Any

from bascule.cli.command import shown
from bascule.cli.endpoint import verb
from bascule.cli.parser import (
    actions_of,
    add_strict,
)
from bascule.cli.records import Noun, add_accept_verb, add_record_verbs, create
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


BACKENDS = Noun(
    "backend",
    "backends",
    "name",
    ("backend", "state", "at", "models", "key", "file"),
    _row,
)


def fill(group: argparse.ArgumentParser) -> None:
    """Add the commands of ``backends``."""
    actions = actions_of(group)
    add_record_verbs(actions, BACKENDS)
    add_accept_verb(actions, BACKENDS)
    parser = verb(actions, "add", "add a backend", add, examples=_ADD_EXAMPLES)
    option = parser.add_argument
    option("id", metavar="NAME", help="its name")
    option("--base-url", required=True, metavar="URL", help="its address, up to and including /v1")
    option("--key-ref", metavar="REF", help="where its key is: ${ENV:X}, file://…, secret://…")
    many: dict[str, Any] = {"action": "append", "default": []}
    option("--model", metavar="NAME", help="a model it answers for; repeatable", **many)
    option("--header", metavar="KEY=VALUE", type=pair, help="a header; repeatable", **many)
    option("--insecure", action="store_true", help="allow plain http to other machines")
    option("--disabled", action="store_true", help="add it disabled")
    add_strict(parser)


def add(arguments: argparse.Namespace) -> int:
    """Add a backend from the words of a command line."""
    record: dict[str, Any] = {
        "name": arguments.id,
        "base_url": arguments.base_url,
        "models": arguments.model,
        "headers": dict(arguments.header),
        "insecure": arguments.insecure,
        "enabled": not arguments.disabled,
    }
    if arguments.key_ref is not None:
        record["key_ref"] = arguments.key_ref
    return create(BACKENDS, arguments, record)
