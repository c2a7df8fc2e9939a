"""``bascule tasks``: the tasks of a running registry."""

from __future__ import annotations

import argparse

from bascule.cli.command import shown
from bascule.cli.edit import add_using_verbs, after_adding
from bascule.cli.endpoint import verb
from bascule.cli.parser import STRICT, Parser, actions_of, many, option, switch
from bascule.cli.records import (
    SELECTION,
    Noun,
    add_record_verbs,
    create,
    field,
    given,
    selection,
    table_of,
    words_of,
)
from bascule.cli.table import on_or_off
from bascule.cli.values import pair, seconds
from bascule.wire.api.records import Plain

_ADD_EXAMPLES = """\
  bascule tasks add reader --server notes --read-only
  bascule tasks add triage --server issues --allow-tool 'search_*' --deny-tool '*_secret' \\
      --may-use wiki
  bascule tasks add support --profile support

A list that is not given does not narrow. A session of the task has the servers of --server by
default, and may ask for those of --may-use besides.
"""

_INVOKE = "run the module of a task on its node"
_INVOKE_EXAMPLES = """\
  bascule tasks set nightly executable.path=/srv/guests/nightly.wasm
  bascule tasks invoke nightly --arg Paris --timeout 60

The node runs the module in a process of its own; Ctrl-C ends it. Exit codes: those of bascule run.
"""


def _filters(record: Plain) -> str:
    policy = table_of(record, "mcp")
    filters = [
        *(f"+{pattern}" for pattern in words_of(policy.get("tool_allowlist"))),
        *(f"-{pattern}" for pattern in words_of(policy.get("tool_denylist"))),
        *(["read-only"] if policy.get("read_only") else []),
    ]
    return shown(" ".join(filters)) or "-"


TASKS = Noun(
    "task",
    {
        "task": field("task_id"),
        "mcp": lambda record: on_or_off(on=bool(table_of(record, "mcp").get("enabled"))),
        "servers": field("mcp", "default_server_ids"),
        "may use": field("mcp", "allowed_server_ids"),
        "tools": _filters,
        "profile": field("mcp", "profile"),
        "file": field("owner"),
    },
)


def fill(group: Parser) -> None:
    """Add the commands of ``tasks``."""
    actions = actions_of(group)
    add_record_verbs(actions, TASKS)
    add_using_verbs(actions)
    verb(actions, "invoke", _INVOKE, invoke, examples=_INVOKE_EXAMPLES).takes(
        option("id", "ID", "the id of the task"),
        many("--arg", "TEXT", "an argument, after those of the record; may be repeated"),
        many("--env", "KEY=VALUE", "a variable that the record does not set", type=pair),
        option("--model", "NAME", "ask this model, whichever the guest asks for"),
        option("--timeout", "SECONDS", "end the guest after this", type=seconds),
    )
    verb(actions, "add", "add a task", add, examples=_ADD_EXAMPLES).takes(
        option("id", "ID", "its name"),
        option("--name", "TEXT", "a display name"),
        option("--description", "TEXT", "what it is for"),
        *SELECTION,
        option("--profile", "NAME", "a profile that narrows it"),
        switch("--disabled", "add it without access to any server"),
        STRICT,
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


def invoke(arguments: argparse.Namespace) -> int:
    """Run the module of a task on its node."""
    from bascule.cli.invoke import invoke_task  # noqa: PLC0415 - this command alone

    return invoke_task(arguments)
