"""``bascule tasks``: the tasks of a running registry.

Below: ``records.py``. Above: ``main``.
"""

from __future__ import annotations

import argparse
from typing import Any

from bascule.cli.command import shown
from bascule.cli.edit import add_using_verbs, after_adding, words_of
from bascule.cli.endpoint import verb
from bascule.cli.parser import (
    actions_of,
    add_strict,
)
from bascule.cli.records import Noun, add_record_verbs, add_selection_options, create, selection
from bascule.cli.table import paint
from bascule.model.json import is_object
from bascule.wire.api.records import Plain

_ADD_EXAMPLES = """\
  bascule tasks add reader --server notes --read-only
  bascule tasks add triage --server issues --allow-tool 'search_*' --deny-tool '*_secret' \\
      --may-use wiki
  bascule tasks add support --profile support

A list that is not given does not narrow. A session of the task has the servers of --server by
default, and may also ask for those of --may-use.
"""


def _row(record: Plain) -> list[str]:
    policy = record.get("mcp")
    fields: dict[str, Any] = dict(policy) if is_object(policy) else {}
    filters = [
        *(f"+{pattern}" for pattern in words_of(fields.get("tool_allowlist"))),
        *(f"-{pattern}" for pattern in words_of(fields.get("tool_denylist"))),
        *(["read-only"] if fields.get("read_only") else []),
    ]
    return [
        shown(str(record.get("task_id"))),
        paint("on", "green") if fields.get("enabled") else paint("off", "dim"),
        shown(" ".join(words_of(fields.get("default_server_ids")))) or "-",
        shown(" ".join(words_of(fields.get("allowed_server_ids")))) or "-",
        shown(" ".join(filters)) or "-",
        shown(str(fields.get("profile") or "-")),
        shown(str(record.get("owner") or "-")),
    ]


TASKS = Noun(
    "task",
    "tasks",
    "task_id",
    ("task", "mcp", "servers", "may use", "tools", "profile", "file"),
    _row,
)


def fill(group: argparse.ArgumentParser) -> None:
    """Add the commands of ``tasks``."""
    actions = actions_of(group)
    add_record_verbs(actions, TASKS)
    add_using_verbs(actions)
    parser = verb(actions, "add", "add a task", add, examples=_ADD_EXAMPLES)
    option = parser.add_argument
    option("id", metavar="ID", help="its name")
    option("--name", metavar="TEXT", help="a display name")
    option("--description", metavar="TEXT", help="what it is for")
    add_selection_options(parser)
    option("--profile", metavar="NAME", help="a profile that narrows it")
    option("--disabled", action="store_true", help="add it without access to any server")
    add_strict(parser)


def add(arguments: argparse.Namespace) -> int:
    """Add a task from the words of a command line."""
    policy = selection(arguments) | {"enabled": not arguments.disabled}
    if arguments.profile is not None:
        policy["profile"] = arguments.profile
    texts = {"name": arguments.name, "description": arguments.description}
    record: dict[str, Any] = {"task_id": arguments.id, "mcp": policy}
    record |= {name: text for name, text in texts.items() if text is not None}
    code = create(TASKS, arguments, record)
    after_adding(arguments)
    return code
