"""A token to make: what it may have, and which of it goes together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypedDict
from unicodedata import is_normalized

from msgspec import Struct

from bascule.auth.token_record import TokenRecord
from bascule.errors import refuse_any
from bascule.model.person import PERSON_WORDS, is_person_id
from bascule.model.role import ROLES, Grant, Role
from bascule.model.snapshot import Snapshot
from bascule.policy.characters import render_exact
from bascule.wire.api.tokens import MAX_TASKS, MAX_TTL_SECONDS

_NAME_LIMIT = 128
#: How the names of a node's workers end.
_WORKER = re.compile(r"/[0-9]+$")
#: The roles that may be limited to tasks.
_LIMITED: tuple[Role, ...] = ("approver", "viewer")


class TokenOptions(TypedDict, total=False):
    """What a token may have besides a name and a role."""

    task_id: str | None
    ttl_seconds: float | None
    person: str | None
    acts_for_users: bool
    tasks: Sequence[str] | None


class TokenRequest(Struct, frozen=True, kw_only=True):
    """A token to make; one that ``grants`` something is a link, whatever its role."""

    name: str
    role: Role
    task_id: str | None = None
    ttl_seconds: float | None = None
    person: str | None = None
    acts_for_users: bool = False
    tasks: Sequence[str] | None = None
    grants: Grant | None = None
    process: str | None = None


def refuse_unfit(wanted: TokenRequest) -> None:
    """Raise InvalidRecord with every problem of a token to make."""
    problems = _unfit_text("name", wanted.name)
    if wanted.role == "node" and _WORKER.search(wanted.name):
        problems.append("name: a node's must not end in a slash and a number, as its workers' do")
    if wanted.role not in ROLES:
        problems.append(f"role: {wanted.role!r} is not one of: {', '.join(ROLES)}")
    else:
        problems += [*_unfit_task(wanted), *_unfit_person(wanted), *_unfit_tasks(wanted)]
    ttl = wanted.ttl_seconds
    if ttl is not None and not 0 < ttl <= MAX_TTL_SECONDS:
        problems.append(f"ttl_seconds: must be a number above 0, at most {MAX_TTL_SECONDS}")
    refuse_any(problems)


def _unfit_task(wanted: TokenRequest) -> list[str]:
    if wanted.role == "client" and not wanted.task_id:
        return ["task_id: is required: a client token is bound to a task"]
    if wanted.role != "client" and wanted.task_id is not None:
        return [f"task_id: is for client tokens, not for role {wanted.role!r}"]
    return [] if wanted.task_id is None else _unfit_text("task_id", wanted.task_id)


def _unfit_person(wanted: TokenRequest) -> list[str]:
    """Say what is wrong with whom a token speaks for: one person, whom it names, or nobody."""
    problems: list[str] = []
    if wanted.acts_for_users and wanted.role != "client":
        problems.append(f"acts_for_users: is for client tokens, not for role {wanted.role!r}")
    if wanted.person is None:
        return problems
    if wanted.acts_for_users:
        problems.append("person: a token that acts for users is no one person's")
    elif wanted.role == "node":
        problems.append("person: a node is nobody's; it is for the tokens of people and programs")
    if not is_person_id(wanted.person):
        problems.append(f"person: {PERSON_WORDS}")
    return problems


def _unfit_tasks(wanted: TokenRequest) -> list[str]:
    if wanted.tasks is None:
        return []
    if wanted.role not in _LIMITED:
        return [f"tasks: is for {' and '.join(_LIMITED)} tokens, not for role {wanted.role!r}"]
    if not 1 <= len(wanted.tasks) <= MAX_TASKS:
        return [f"tasks: must name 1 to {MAX_TASKS} tasks; without it, all of them are meant"]
    paths = {f"tasks[{number}]": task for number, task in enumerate(wanted.tasks)}
    return [problem for path, task in paths.items() for problem in _unfit_text(path, task)]


def _unfit_text(path: str, text: str) -> list[str]:
    if not text or len(text) > _NAME_LIMIT or not text.isprintable():
        return [f"{path}: must be 1 to {_NAME_LIMIT} printable characters"]
    if text != text.strip() or not is_normalized("NFKC", text) or render_exact(text) != text:
        return [f"{path}: must not look like another text: no character that cannot be seen"]
    return []


def doubts(record: TokenRecord, snapshot: Snapshot) -> tuple[str, ...]:
    """Say what of a token does nothing yet: its task or person may be written after it."""
    until = "until there is, calls are refused"
    found: list[str] = []
    if record.task_id is not None and record.task_id not in snapshot.tasks:
        found.append(f"task_id: there is no task {record.task_id!r} yet; {until}")
    if record.person is not None and record.person not in snapshot.users:
        found.append(f"person: there is no user {record.person!r} yet; {until}")
    missing = [task for task in record.tasks or () if task not in snapshot.tasks]
    return (*found, *(f"tasks: there is no task {task!r} yet" for task in missing))
