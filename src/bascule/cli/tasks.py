"""``bascule tasks``: the tasks of a running registry."""

from __future__ import annotations

import argparse

from bascule.cli.command import shown
from bascule.cli.edit import add_using_verbs, after_adding, words_of
from bascule.cli.endpoint import verb
from bascule.cli.parser import STRICT, actions_of, option, switch
from bascule.cli.records import SELECTION, Noun, add_record_verbs, create, given, selection
from bascule.cli.table import paint
from bascule.model.json import is_object
from bascule.wire.api.records import Plain

_ADD_EXAMPLES = """\
  bascule tasks add reader --server notes --read-only
  bascule tasks add triage --server issues --allow-tool 'search_*' --deny-tool '*_secret' \\
      --may-use wiki
  bascule tasks add support --profile support

A list that is not given does not narrow. A session of the task has the servers of --server by
default, and may ask for those of --may-use besides.
"""


def _row(record: Plain) -> list[str]:
    policy = record.get("mcp")
    fields: Plain = {**policy} if is_object(policy) else {}
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


TASKS = Noun("task", ("task", "mcp", "servers", "may use", "tools", "profile", "file"), _row)


def fill(group: argparse.ArgumentParser) -> None:
    """Add the commands of ``tasks``."""
    actions = actions_of(group)
    add_record_verbs(actions, TASKS)
    add_using_verbs(actions)
    verb(
        actions,
        "add",
        "add a task",
        add,
        option("id", "ID", "what it is called"),
        option("--name", "TEXT", "a name for people"),
        option("--description", "TEXT", "what it is for"),
        *SELECTION,
        option("--profile", "NAME", "a profile that narrows it"),
        switch("--disabled", "add it without access to any server"),
        STRICT,
        examples=_ADD_EXAMPLES,
    )


def add(arguments: argparse.Namespace) -> int:
    """Add a task from the words of a command line."""
    policy = selection(arguments) | given(profile=arguments.profile)
    record = {
        "task_id": arguments.id,
        "mcp": {**policy, "enabled": not arguments.disabled},
        **given(name=arguments.name, description=arguments.description),
    }
    code = create("task", arguments, record)
    after_adding(arguments)
    return code
