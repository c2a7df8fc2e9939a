"""Whose task a command uses when it names none.

``--task`` comes before ``BASCULE_TASK``, that before the data directory's default
(``bascule tasks default``), and that before the only task there is. A token that somebody gives
has a task of its own.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from bascule.app.data_dir import DEFAULT_TASK_FILE
from bascule.cli.command import nearest, shown
from bascule.cli.command_line import typed
from bascule.cli.configuration import read_settings
from bascule.cli.endpoint import URL_VARIABLE, registry_of
from bascule.cli.parser import TOKEN_VARIABLE
from bascule.client.http import ApiError
from bascule.client.registry import RegistryClient
from bascule.db.private_files import write_private
from bascule.errors import InvalidRecord

TASK_VARIABLE = "BASCULE_TASK"


def has_token(arguments: argparse.Namespace) -> bool:
    """Say whether somebody gave a token, which has a task of its own."""
    return bool(arguments.token or os.environ.get(TOKEN_VARIABLE))


async def likely_task(arguments: argparse.Namespace) -> str | None:
    """Return the task that was named, or the default; the registry is asked only without either.

    There may be no such task: the session is refused then, and ``chosen_task`` says why.
    """
    if has_token(arguments):
        return arguments.task
    named = arguments.task or os.environ.get(TASK_VARIABLE) or default_task(arguments)
    return named or await chosen_task(arguments)


async def chosen_task(arguments: argparse.Namespace) -> str | None:
    """Return the task of a session; None where the token that is given decides."""
    if has_token(arguments):
        return arguments.task
    async with registry_of(arguments) as registry:
        tasks = await task_ids(registry)
    named = arguments.task or os.environ.get(TASK_VARIABLE)
    if named:
        return known_task(named, tasks)
    default = default_task(arguments)
    if default in tasks:
        return default
    if len(tasks) == 1:
        return tasks[0]
    raise InvalidRecord([_which(arguments, tasks, default)])


def known_task(task: str, known: list[str]) -> str:
    """Return a task that is there; raise ApiError with what was probably meant."""
    if task in known:
        return task
    near = nearest(task, known, count=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
    raise ApiError(404, "not_found", f"there is no task {task!r}; {hint}")


async def task_ids(registry: RegistryClient) -> list[str]:
    return [str(task.get("task_id")) for task in (await registry.list("task")).items]


def default_task(arguments: argparse.Namespace) -> str | None:
    """Return the data directory's default, if it has one."""
    try:
        return _file(arguments).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def set_default_task(arguments: argparse.Namespace, task: str | None) -> None:
    """Keep a task as the data directory's default, or keep none."""
    path = _file(arguments)
    if task is None:
        path.unlink(missing_ok=True)
    else:
        write_private(path, f"{task}\n".encode())


def keep_first_task(arguments: argparse.Namespace, tasks: list[str]) -> None:
    """Make the only task the default: a second one is then no reason to ask whose session."""
    here = not (arguments.api_url or os.environ.get(URL_VARIABLE))
    if here and len(tasks) == 1 and default_task(arguments) is None:
        set_default_task(arguments, tasks[0])


def _file(arguments: argparse.Namespace) -> Path:
    return Path(read_settings(arguments).data_dir) / DEFAULT_TASK_FILE


def _which(arguments: argparse.Namespace, tasks: list[str], default: str | None) -> str:
    if not tasks:
        make = typed("tasks add mine --server ID", arguments)
        return f"there is no task yet; make one: {make}"
    gone = "" if default is None else f"the default task {shown(default)} is gone; "
    known = ", ".join(map(shown, tasks))
    choose = typed(f"tasks default {shown(tasks[0])}", arguments)
    return f"{gone}whose session? give --task, or choose one for good: {choose}; known: {known}"
