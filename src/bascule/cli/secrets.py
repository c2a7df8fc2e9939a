"""``bascule secrets``: the secrets of a data directory, whether or not a process serves it.

It works on the files themselves, as ``bascule tokens`` does, with the key that is beside them or
given. A value is typed at a prompt or read from standard input: arguments show in the process list.
No command prints one. A process that serves the directory notices a change within a second or so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from getpass import getpass
from pathlib import Path
from typing import NoReturn

from bascule.app.data_dir import owner_key
from bascule.app.owner_access import owner_note, owner_records, owner_secrets
from bascule.app.stored_records import with_servers
from bascule.audit.events import Act
from bascule.cli.acts import whoever
from bascule.cli.command import run_async, show, shown
from bascule.cli.command_line import typed
from bascule.cli.configuration import CONFIG, DATA_DIR, read_settings
from bascule.cli.failures import report
from bascule.cli.parser import JSON, Actions, Parser, actions_of, command, many, one_of, option
from bascule.cli.table import paint, render_table
from bascule.control.envelope import OuterKey
from bascule.control.secret_keys import DESCRIPTOR_OPTION, key_of_descriptor, key_of_environment
from bascule.control.secrets import MAX_VALUE_BYTES, Secrets, name_problems
from bascule.errors import BasculeError, InvalidRecord, refuse_any
from bascule.model.secret_use import SecretUse, UserKind
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.wire.api.secrets import BindingShown, SecretList, SecretRemoved, SecretShown

#: For every command that opens secrets, ``bascule up`` too.
SECRETS_KEY_FD = option(
    DESCRIPTOR_OPTION, "N", "read the key of the secrets from this descriptor", type=int
)
_NEW_KEY_OPTION = "--new-key-fd"
_AGENTS = option("--agents", "FILE", "the file of agents of bascule up: AGENT/NAME is a server")
_NAME = option("name", "NAME", "its name, as in secret://NAME")
_USER = one_of(
    option("--server", "ID", "a server"),
    option("--backend", "NAME", "a backend"),
)
_SET_EXAMPLES = """\
  bascule secrets set github_token --bind github       # asks for the value
  pass show github | bascule secrets set github_token

The value is never an argument. Of standard input one line end is dropped.
"""

_Work = Callable[[Secrets, argparse.Namespace], Coroutine[object, object, int]]


class NoSuchSecret(BasculeError):
    """There is no secret of that name."""

    code = "not_found"


def fill(group: Parser) -> None:
    """Add the commands of ``secrets``."""
    actions = actions_of(group)
    setting = _command(actions, "set", "set a secret: a new version of it", set_secret).takes(
        _NAME,
        many("--bind", "SERVER", "let this server be given it; may be repeated"),
        many("--bind-backend", "BACKEND", "let this backend be given it; may be repeated"),
    )
    setting.epilog = f"examples:\n{_SET_EXAMPLES}"

    def refuse(message: str) -> NoReturn:
        """Say what is wrong without words that may be the value."""
        words = "unrecognized arguments"
        more = "; the value is not one: it is asked for, or read from standard input"
        setting.error(words + more if message.startswith(words) else message)

    setting.set_defaults(usage=refuse)
    _command(actions, "list", "list the secrets, without their values", list_secrets)
    _command(actions, "bind", "let a server or backend be given a secret", bind).takes(_NAME, _USER)
    _command(actions, "unbind", "give a secret to one no more", unbind).takes(_NAME, _USER)
    _command(actions, "remove", "remove a secret", remove).takes(_NAME)
    _command(actions, "rekey", "wrap the secrets under a new key", rekey).takes(
        option(_NEW_KEY_OPTION, "N", "read the new key from this descriptor", type=int)
    )


def _command(actions: Actions, name: str, summary: str, work: _Work) -> Parser:
    """Add a command that works on the secrets of a data directory."""

    def run(arguments: argparse.Namespace) -> int:
        key = given_key(arguments)  # before the event loop opens descriptors of its own
        number: int | None = vars(arguments).get("new_key_fd")
        arguments.new_key = None if number is None else key_of_descriptor(number, _NEW_KEY_OPTION)
        try:
            return run_async(_opened(work, arguments, key))
        except OSError as error:
            return report(error, as_json=arguments.json)

    return command(actions, name, summary, run, DATA_DIR, CONFIG, _AGENTS, SECRETS_KEY_FD, JSON)


async def _opened(work: _Work, arguments: argparse.Namespace, key: OuterKey | None) -> int:
    settings = read_settings(arguments)
    data = Path(settings.data_dir)
    records = await owner_records(settings) or Snapshot()
    if settings.agents is not None:
        records = with_servers(records, _servers_of_agents(settings.agents))
    note = owner_note(settings) or _unnoted
    async with owner_secrets(settings, key, note, lambda: records) as secrets:
        code = await work(secrets, arguments)
    if work in _NOTICED and not arguments.json and owner_key(data) is not None:
        print("the process that serves notices it within about a second", file=sys.stderr)
    return code


def _servers_of_agents(file: str) -> Mapping[str, ServerRecord]:
    from bascule.manager.file import AgentsFile  # noqa: PLC0415 - few have agents
    from bascule.manager.record import secret_users  # noqa: PLC0415

    return secret_users(AgentsFile(file).read().config)


async def _unnoted(act: Act) -> None:
    """Note nothing: the ledger is off."""


def given_key(arguments: argparse.Namespace) -> OuterKey | None:
    """Return the key of a descriptor or of the environment; None: it is in the data directory.

    Call it before an event loop runs.
    """
    in_environment = key_of_environment()
    number: int | None = arguments.secrets_key_fd
    return in_environment if number is None else key_of_descriptor(number)


# --- the commands


async def set_secret(secrets: Secrets, arguments: argparse.Namespace) -> int:
    """Set a secret from a prompt or standard input."""
    name: str = arguments.name
    refuse_any(name_problems(name))  # before a value is asked for
    uses = [
        *(_use(secrets, "server", user, "--bind") for user in arguments.bind),
        *(_use(secrets, "backend", user, "--bind-backend") for user in arguments.bind_backend),
    ]
    version = await secrets.set(name, _value(name), by=whoever(), bind=uses)
    one = await secrets.shown(name)
    return show(arguments, one, notes=[f"set {name}, version {version}", *_unbound(one, arguments)])


async def list_secrets(secrets: Secrets, arguments: argparse.Namespace) -> int:
    """Print what is shown of the secrets."""
    listed = await secrets.listing()
    header = ("name", "version", "set at", "bound to", "used by")
    table = render_table(header, [_row(one) for one in listed], none="there is no secret")
    return show(arguments, SecretList(listed), table, warnings=_stale(listed, arguments))


async def bind(secrets: Secrets, arguments: argparse.Namespace) -> int:
    """Let a server or backend be given a secret, as its record stands now."""
    name: str = arguments.name
    kind, user = _chosen(arguments)
    use = _use(secrets, kind, user, f"--{kind}")
    await _known(name, secrets.bind(name, use, by=whoever()))
    note = f"bound {name} to {kind} {shown(user)} as its record stands"
    return show(arguments, await secrets.shown(name), notes=[note])


async def unbind(secrets: Secrets, arguments: argparse.Namespace) -> int:
    """Give a secret to a server or backend no more."""
    name: str = arguments.name
    kind, user = _chosen(arguments)
    if not await _known(name, secrets.unbind(name, kind, user, by=whoever())):
        raise NoSuchSecret(f"the secret {name} is not bound to {kind} {user}")
    note = f"{kind} {shown(user)} is given {name} no more"
    return show(arguments, await secrets.shown(name), notes=[note])


async def remove(secrets: Secrets, arguments: argparse.Namespace) -> int:
    """Remove a secret and its bindings."""
    name: str = arguments.name
    await _known(name, secrets.remove(name, by=whoever()))
    return show(arguments, SecretRemoved(name), notes=[f"removed {name}"])


async def rekey(secrets: Secrets, arguments: argparse.Namespace) -> int:
    """Wrap every secret's own key again under a new key."""
    new: OuterKey | None = arguments.new_key
    await secrets.rekey(new, by=whoever())
    kept = "the new key is in the data directory" if new is None else "keep the new key"
    notes = [f"{kept}; the old one opens old copies of the store and nothing else"]
    return show(arguments, {"rekeyed": len(await secrets.listing())}, notes=notes)


#: What a process that serves has to notice.
_NOTICED = (set_secret, bind, unbind, remove)


# --- what they are given


def _value(name: str) -> str:
    """Return the value: typed without an echo, or all of standard input but one line end."""
    if sys.stdin.isatty():
        return getpass(f"value of {shown(name)}: ")
    data = sys.stdin.buffer.read(MAX_VALUE_BYTES + 3)
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise InvalidRecord(["value: must be UTF-8 text"]) from None


def _chosen(arguments: argparse.Namespace) -> tuple[UserKind, str]:
    server: str | None = arguments.server
    backend: str | None = arguments.backend
    if server is None and backend is None:
        arguments.usage("give --server ID or --backend NAME")
    return ("server", server) if server is not None else ("backend", backend or "")


def _use(secrets: Secrets, kind: UserKind, user: str, path: str) -> SecretUse:
    """Return a server or backend as its record in the data directory stands."""
    use = secrets.use(kind, user)
    if use is None:
        hint = "; for a server of an agent, give --agents FILE" if "/" in user else ""
        raise InvalidRecord([f"{path}: there is no {kind} {user!r} in the registry{hint}"])
    return use


async def _known(name: str, work: Coroutine[object, object, bool | None]) -> bool | None:
    try:
        return await work
    except KeyError:
        raise NoSuchSecret(f"there is no secret {name}") from None


# --- what they print


def _row(one: SecretShown) -> list[str]:
    bound = [_binding(binding) for binding in one.bound]
    users = [_user(user.kind, user.id) for user in one.used_by]
    lists = [", ".join(words) or "-" for words in (bound, users)]
    return [one.name, str(one.version), one.changed_at or "-", *lists]


def _binding(binding: BindingShown) -> str:
    user = _user(binding.kind, binding.id)
    return user if binding.state == "bound" else paint(f"{user} ({binding.state})", "yellow")


def _user(kind: UserKind, user: str) -> str:
    return user if kind == "server" else f"{kind} {user}"


def _unbound(one: SecretShown, arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the command that has somebody given a secret which nobody is given yet."""
    if one.bound:
        return
    for user in one.used_by:
        words = f"secrets bind {one.name} --{user.kind} {user.id}"
        yield f"{user.kind} {user.id} refers to it and is not given it: {typed(words, arguments)}"
    if not one.used_by:
        words = f"secrets bind {one.name} --server ID"
        yield (
            f"no record refers to it yet (secret://{one.name}); when one does: "
            f"{typed(words, arguments)}"
        )


def _stale(listed: Sequence[SecretShown], arguments: argparse.Namespace) -> Iterator[str]:
    """Yield what does not hold any more, and the command that makes it hold again."""
    for one in listed:
        for binding in one.bound:
            if binding.state == "changed":
                words = f"secrets bind {one.name} --{binding.kind} {binding.id}"
                yield (
                    f"{one.name}: the record of {binding.kind} {binding.id} is not what it was "
                    "when it was bound, so it is not given the secret; look at the record, then: "
                    f"{typed(words, arguments)}"
                )
