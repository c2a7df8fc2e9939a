"""A task's executable as it may run on a node: which module, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from bascule.asgi.errors import Refused
from bascule.errors import InvalidRecord, refuse_any
from bascule.model.reference import Template, parse_value
from bascule.model.task import Executable, TaskRecord
from bascule.outbound.private_files import is_private
from bascule.outbound.references import permit
from bascule.outbound.rules import NodeRules
from bascule.wire.api.guests import Invocation


def executable_of(task: TaskRecord) -> Executable:
    """Return what a task runs; raise Refused for a task that runs nothing."""
    if task.executable is None:
        raise Refused(
            "wrong_state",
            f"the task {task.task_id!r} has no executable; set one: "
            f"bascule tasks set {task.task_id} executable.path=/path/to/guest.wasm",
        )
    return task.executable


def permitted_module(rules: NodeRules, path: str) -> str:
    """Return the path without links, if the node's owner lets tasks run what is there."""
    if not path.startswith("/"):
        raise InvalidRecord([f"executable.path: {path!r} is not an absolute path"])
    try:
        real_path = str(Path(path).resolve())
    except (OSError, ValueError, RuntimeError):
        raise InvalidRecord([f"executable.path: {path!r} leads nowhere"]) from None
    if is_private(real_path, rules.private):
        raise Refused(
            "guest_refused",
            "executable.path: this is a file of Bascule's own or of the running system, and no "
            "task may run it, whatever [node] guests says",
        )
    if not rules.allows_guest(real_path):
        raise Refused(
            "guest_refused",
            f"executable.path: this node does not let tasks run {real_path}: [node] guests does "
            f"not list it; whoever runs the node can {permit('guest', real_path)}",
        )
    if not Path(real_path).is_file():  # to open a pipe instead could wait for ever
        raise Refused("bad_module", f"executable.path: there is no regular file {real_path}")
    return real_path


def arguments_of(executable: Executable, added: Invocation) -> tuple[str, ...]:
    """Return the arguments of the record and those of a caller after them."""
    given = {f"executable.args[{at}]": text for at, text in enumerate(executable.args)}
    return (*_plain(given).values(), *added.args)


def environment_of(executable: Executable, added: Invocation) -> tuple[tuple[str, str], ...]:
    """Return the variables of the record and those of a caller, who replaces none of them."""
    refuse_any([f"env.{name}: the task sets it" for name in added.env if name in executable.env])
    own = _plain(executable.env, lambda name: f"executable.env.{name}")
    return (*own.items(), *added.env.items())


def _plain(given: Mapping[str, str], where: Callable[[str], str] = str) -> dict[str, str]:
    """Return values as they are meant; raise InvalidRecord for references: no guest gets any."""
    values, references = plain_values(given)
    refuse_any(
        [
            f"{where(name)}: is a reference, and a guest is given none: write the value itself"
            for name in references
        ]
    )
    return values


def plain_values(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return values as they are meant, ``$$`` as a dollar sign, and the names of references."""
    meant = {name: _plain_value(text) for name, text in given.items()}
    values = {name: value for name, value in meant.items() if value is not None}
    return values, [name for name in meant if name not in values]


def _plain_value(text: str) -> str | None:
    try:
        parsed = parse_value(text)
    except ValueError:
        return None
    if not isinstance(parsed, Template) or parsed.variables:
        return None
    return "".join(part for part in parsed.parts if isinstance(part, str))
