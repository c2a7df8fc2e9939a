"""From a record to what is started: references resolved now, the node's rules applied.

Above: the pool, once per connect. Below: ``transport.spawn``, which starts a ``Launch`` as it is.
The environment begins empty; what a record did not ask for, its server does not see. Values that
came from references are handed on for masking and stand in no message.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Protocol

from msgspec import Struct

from bascule.errors import LaunchDenied, ServerUnavailable
from bascule.model.reference import (
    Stored,
    Template,
    names_a_credential,
    parse_template,
    parse_value,
)
from bascule.model.server import ServerRecord, Stdio
from bascule.node.pool.transport.spawn import Launch, locate, working_directory
from bascule.node.rules import NodeRules

MAX_FILE_BYTES = 65_536
SHORTEST_KNOWN_VALUE = 4
LOCALE = "C.UTF-8"

# Variables of the dynamic loader: they put foreign code into whichever program is started.
_LOADER_PREFIXES = ("LD_", "DYLD_")
# What every machine sets and nobody hides.
_PUBLIC = frozenset(
    {"HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
)


class SecretResolver(Protocol):
    """Where ``secret://name`` leads."""

    async def secret(self, name: str) -> str:
        """Return the secret, or raise KeyError when there is none of that name."""
        ...


class Resolved(Struct, frozen=True):
    """A launch, the values in it that came from elsewhere, and its private folder.

    ``reference_values`` are all that came from references: they are never written down.
    ``known_values`` are the credentials among them: they are masked in what anybody reads. The
    folder holds the private HOME and TMPDIR; it goes when the server has ended.
    """

    launch: Launch
    known_values: frozenset[str]
    reference_values: frozenset[str]
    folder: Path

    def __repr__(self) -> str:
        return f"Resolved(program={self.launch.argv[0]!r}, folder={str(self.folder)!r})"


async def resolve_launch(
    record: ServerRecord,
    rules: NodeRules,
    *,
    environ: Mapping[str, str],
    home: Path,
    secrets: SecretResolver | None = None,
) -> Resolved:
    """Return what to start for a record, or raise with the field at fault and what to do.

    ``environ`` are the node's own variables as they are now. ``home`` is a folder for private
    folders, one per server id: connections of one server that must not share a HOME get
    different ones.
    """
    stdio = _stdio(record)
    reading = _Reading(rules, environ, secrets)
    given = {
        name: await reading.value(text, _field(stdio, name))
        for name, text in stdio.environment().items()
    }
    command = reading.text(stdio.command, "stdio.command")
    args = [reading.text(arg, f"stdio.args[{i}]") for i, arg in enumerate(stdio.args)]
    _refuse_nul("stdio.cwd", stdio.cwd or "")
    _refuse_loader_variables(rules, given)
    folder = home / record.server_id
    env = _environment(given, environ, folder)
    program = _program(rules, Launch((command,), env, stdio.cwd), own_path="PATH" in given)
    _make_private(folder)
    return Resolved(
        Launch((program, *args), env, stdio.cwd),
        frozenset(reading.known),
        frozenset(reading.read),
        folder,
    )


def _stdio(record: ServerRecord) -> Stdio:
    if record.stdio is None:
        raise ServerUnavailable(f"{record.server_id} has no [stdio] table to start a server from")
    return record.stdio


def _field(stdio: Stdio, name: str) -> str:
    return f"stdio.env.{name}" if name in stdio.env else "stdio.env_from"


class _Reading:
    """The references of one record, resolved one by one; what they gave is gathered.

    ``known`` are credentials: what came from a secret or a file, and variables whose own name or
    whose place says so. To mask the rest would ruin ordinary text: the results of a server that
    was pointed at ${DATA}/notes are full of that path.
    """

    def __init__(
        self, rules: NodeRules, environ: Mapping[str, str], secrets: SecretResolver | None
    ) -> None:
        self.known: set[str] = set()
        self.read: set[str] = set()
        self._rules = rules
        self._environ = environ
        self._secrets = secrets

    async def value(self, text: str, field: str) -> str:
        """Return a value of the environment, where secrets and files may stand as well."""
        try:
            parsed = parse_value(text)
        except ValueError as fault:
            raise ServerUnavailable(f"{field}: {fault}") from None
        if isinstance(parsed, Template):
            return self._resolved(parsed, field)
        value = await self._stored(parsed, field)
        _refuse_nul(field, value)
        self._remember(value, secret=True)
        return value

    def text(self, text: str, field: str) -> str:
        """Return a value that shows in the process list: variables only."""
        try:
            parsed = parse_template(text)
        except ValueError as fault:
            raise ServerUnavailable(f"{field}: {fault}") from None
        return self._resolved(parsed, field)

    def _resolved(self, template: Template, field: str) -> str:
        for variable in template.variables:
            self._check_variable(variable.name, field)
        try:
            value = template.resolve(self._environ.get)
        except KeyError as missing:
            _unresolved(f"{field}: the variable {missing.args[0]} is not set on this node")
        for name in {variable.name for variable in template.variables} - _PUBLIC:
            secret = names_a_credential(name) or names_a_credential(field.rpartition(".")[2])
            self._remember(self._environ.get(name, ""), secret=secret)
        _refuse_nul(field, value)
        return value

    def _check_variable(self, name: str, field: str) -> None:
        if not self._rules.allows_variable(name):
            raise LaunchDenied(
                f"{field}: this node does not let records read the variable {name}; "
                + _permit("variable", name)
            )

    async def _stored(self, stored: Stored, field: str) -> str:
        if stored.scheme == "secret":
            return await self._secret(stored.target, field)
        return await asyncio.to_thread(_file_text, self._rules, stored.target, field)

    async def _secret(self, name: str, field: str) -> str:
        if self._secrets is None:
            _unresolved(f"{field}: secret://{name} cannot be read: this node has no secret store")
        try:
            return await self._secrets.secret(name)
        except KeyError:
            _unresolved(f"{field}: there is no secret named {name!r}")

    def _remember(self, value: str, *, secret: bool) -> None:
        if len(value) >= SHORTEST_KNOWN_VALUE:
            self.read.add(value)
            if secret:
                self.known.add(value)


def _file_text(rules: NodeRules, path: str, field: str) -> str:
    """Return the text of a file, less one line end."""
    if not path.startswith("/"):
        raise ServerUnavailable(f"{field}: file://{path} must name an absolute path")
    try:
        real_path = str(Path(path).resolve())
        if not rules.allows_file(real_path):
            raise LaunchDenied(
                f"{field}: this node does not let records read the file {real_path}; "
                + _permit("file", real_path)
            )
        data = _regular_file(real_path)
    except (OSError, ValueError, RuntimeError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "not a usable path"
        _unresolved(f"{field}: file://{path} cannot be read: {reason}")
    if data is None or len(data) > MAX_FILE_BYTES:
        what = "is no regular file" if data is None else f"is over {MAX_FILE_BYTES} bytes"
        raise ServerUnavailable(f"{field}: file://{path} {what}")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ServerUnavailable(f"{field}: file://{path} is not UTF-8 text") from None


def _regular_file(path: str) -> bytes | None:
    """Return a file's bytes up to just over the cap; None for pipes and devices, never waiting."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)


def _environment(
    given: Mapping[str, str], environ: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Return the whole environment: PATH, a private HOME and TMPDIR, a locale, the record's own."""
    env = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "LANG": LOCALE}
    if "PATH" in environ:
        env["PATH"] = environ["PATH"]
    if not any(name == "LANG" or name.startswith("LC_") for name in given):
        env["LC_ALL"] = LOCALE  # it would outrank a locale that the record chose
    return env | dict(given)


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("home", "tmp"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as fault:
        raise ServerUnavailable(f"no private folder {str(folder)!r}: {fault.strerror}") from fault


def _program(rules: NodeRules, launch: Launch, *, own_path: bool) -> str:
    """Return the program's absolute path, which is also what is started: no second search."""
    command = launch.argv[0]
    if not command:
        raise ServerUnavailable("stdio.command: empty once its references are resolved")
    program = locate(command, launch.env, working_directory(launch))
    name = None if own_path or "/" in command else command
    if not rules.allows_executable(program, name):
        raise LaunchDenied(
            f"stdio.command: this node does not start {program}; " + _permit("executable", program)
        )
    return program


def _refuse_loader_variables(rules: NodeRules, given: Mapping[str, str]) -> None:
    """Refuse to let a record put foreign code into a program that the node's list allows."""
    found = sorted(name for name in given if name.startswith(_LOADER_PREFIXES))
    if found and rules.executables is not None:
        raise LaunchDenied(
            f"stdio.env: {', '.join(found)} would load other code into an allowed program, and "
            "this node starts listed programs only; remove it from the record, or have the node "
            "start any program by removing [node] executables"
        )


def _refuse_nul(field: str, value: str) -> None:
    if "\0" in value:
        raise ServerUnavailable(f"{field}: holds a NUL character, which no process can be given")


def _unresolved(message: str) -> NoReturn:
    raise ServerUnavailable(message, reason="env_missing") from None


def _permit(kind: str, entry: str) -> str:
    """Say which setting to add, ready to be copied."""
    return (
        f"add {json.dumps(entry, ensure_ascii=False)} to [node] {kind}s, "
        f"or start with --allow-{kind} {shlex.quote(entry)}"
    )


class PrivateHomes:
    """Owns the folder below which servers have their private HOME and TMPDIR."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="bascule-"))  # mode 0700

    async def remove(self, folder: Path) -> None:
        """Remove one server's folder, once the server has ended. Any number of times."""
        await asyncio.to_thread(_remove_tree, folder)

    async def close(self) -> None:
        """Remove everything."""
        await self.remove(self.path)

    async def __aenter__(self) -> PrivateHomes:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _remove_tree(folder: Path) -> None:
    """Remove a folder, and folders in it that a server closed to writing (package caches do)."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        _open_up(folder)
        for parent, names, _ in os.walk(folder):
            for name in names:
                _open_up(Path(parent) / name)
        shutil.rmtree(folder, ignore_errors=True)


def _open_up(folder: Path) -> None:
    """Make a folder writable to us; what a link points at is not ours to change."""
    with contextlib.suppress(OSError):
        if not folder.is_symlink():
            folder.chmod(0o700)
