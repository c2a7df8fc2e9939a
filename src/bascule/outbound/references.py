"""References of one record, resolved now and under the node's rules.

What references gave is gathered for masking and stands in no message.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol, TypeAlias, TypeVar

from bascule.errors import LaunchDenied, ServerUnavailable
from bascule.model.reference import (
    PUBLIC_VARIABLES,
    Stored,
    Template,
    names_a_credential,
    parse_reference,
    parse_template,
    parse_value,
)
from bascule.model.secret_use import SecretUse
from bascule.outbound.private_files import is_private, is_private_file, leads_into
from bascule.outbound.rules import NodeRules

T = TypeVar("T")
MAX_FILE_BYTES = 65_536
MAX_CERTIFICATE_BYTES = 1024 * 1024
SHORTEST_KNOWN_VALUE = 4


class SecretResolver(Protocol):
    """Where ``secret://name`` leads."""

    async def secret(self, name: str, use: SecretUse) -> str:
        """Return the secret for a use.

        Raise KeyError when there is none of that name, SecretUnbound when it is not for this use.
        """
        ...


#: Where a program takes secrets from: a resolver, or values by name, which may change.
SecretSource: TypeAlias = SecretResolver | Mapping[str, str]


class MappedSecrets:
    """Secrets of a program of one's own, by name: whoever may see the mapping, may use them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __repr__(self) -> str:
        return "MappedSecrets(…)"

    async def secret(self, name: str, use: SecretUse) -> str:
        """Return the value as it is now."""
        del use
        return self._values[name]


def resolver_of(secrets: SecretSource | None) -> SecretResolver | None:
    """Return what resolves secrets."""
    return MappedSecrets(secrets) if isinstance(secrets, Mapping) else secrets


class Reading:
    """The references of one record, resolved one by one; what they gave is gathered.

    ``known`` are credentials: what came from a secret or a file, variables whose own name says so,
    and whatever stands in a place whose name says so, written out or not. To mask the rest would
    ruin ordinary text: the results of a server that was pointed at ${DATA}/notes are full of that
    path.
    """

    def __init__(
        self,
        rules: NodeRules,
        environ: Mapping[str, str],
        secrets: SecretResolver | None,
        use: SecretUse,
        secrets_read: set[str] | None = None,
    ) -> None:
        self.known: set[str] = set()
        self.read: set[str] = set()
        #: The names of the secrets that were asked for, whether or not they were there.
        self.secrets_read: set[str] = set() if secrets_read is None else secrets_read
        self._given: dict[str, str] = {}
        self.rules = rules
        self.environ = environ
        self._secrets = secrets
        self._use = use

    async def value(self, text: str, field: str, *, secret: bool = False) -> str:
        """Return a value where secrets and files may stand as well.

        ``secret`` says that the place is one for credentials, whatever its variables are called.
        """
        return await self._read(_parsed(parse_value, text, field), field, secret=secret)

    async def credential(self, text: str, field: str) -> str:
        """Return what a field refers to that holds nothing but a reference to a credential.

        A bare name there is that of a secret; it is never the credential itself.
        """
        return await self._read(_parsed(parse_reference, text, field), field, secret=True)

    async def _read(self, parsed: Template | Stored, field: str, *, secret: bool) -> str:
        if isinstance(parsed, Template):
            value = self._resolved(parsed, field, secret=secret)
            if secret or names_a_credential(field.rpartition(".")[2]):
                self.remember(value, secret=True)  # written out or not
                self.remember(value.rpartition(" ")[2], secret=True)  # of "Bearer x" the last word
            return value
        value = await self._stored(parsed, field)
        refuse_nul(field, value)
        self.remember(value, secret=True)
        return value

    def text(self, text: str, field: str) -> str:
        """Return a value that shows in the process list or in logs: variables only."""
        return self._resolved(_parsed(parse_template, text, field), field, secret=False)

    async def path(self, text: str, field: str) -> str:
        """Return the real path of a file that is to be read by others, such as a certificate."""
        path = self.text(text, field).removeprefix("file://")
        return await asyncio.to_thread(_usable_file, self.rules, path, field)

    def remember(self, value: str, *, secret: bool) -> None:
        """Gather a value; very short ones stand in ordinary text too often to be masked."""
        if len(value) >= SHORTEST_KNOWN_VALUE:
            self.read.add(value)
            if secret:
                self.known.add(value)

    def _resolved(self, template: Template, field: str, *, secret: bool) -> str:
        for variable in template.variables:
            self._check_variable(variable.name, field)
        try:
            value = template.resolve(self.environ.get)
        except KeyError as missing:
            unresolved(f"{field}: the variable {missing.args[0]} is not set on this node")
        place = secret or names_a_credential(field.rpartition(".")[2])
        for name in {variable.name for variable in template.variables} - PUBLIC_VARIABLES:
            self.remember(self.environ.get(name, ""), secret=place or names_a_credential(name))
        refuse_nul(field, value)
        return value

    def _check_variable(self, name: str, field: str) -> None:
        if self.rules.is_own_variable(name):
            raise LaunchDenied(f"{field}: {name} is Bascule's own, and no record may read it")
        if not self.rules.allows_variable(name):
            raise LaunchDenied(
                f"{field}: this node does not let records read the variable {name}; "
                + permit("variable", name)
            )

    async def _stored(self, stored: Stored, field: str) -> str:
        if stored.scheme == "secret":
            return await self._secret(stored.target, field)
        return await asyncio.to_thread(_file_text, self.rules, stored.target, field)

    async def _secret(self, name: str, field: str) -> str:
        if self._secrets is None:
            unresolved(f"{field}: there is no secret named {name!r}: this node has no secret store")
        self.secrets_read.add(name)
        try:
            value = self._given[name] = await self._secrets.secret(name, self._use)
        except KeyError:
            unresolved(f"{field}: there is no secret named {name!r}")
        except ServerUnavailable as refused:  # SecretUnbound above all
            raise ServerUnavailable(f"{field}: {refused}", reason=refused.reason) from None
        return value

    async def changed_secrets(self) -> set[str]:
        """Ask for every secret once more; return the names of those that are others now."""
        if self._secrets is None:
            return set()
        changed: set[str] = set()
        for name, given in self._given.items():
            with contextlib.suppress(KeyError, ServerUnavailable):
                if await self._secrets.secret(name, self._use) != given:
                    changed.add(name)
        return changed


def _parsed(parse: Callable[[str], T], text: str, field: str) -> T:
    try:
        return parse(text)
    except ValueError as fault:
        raise ServerUnavailable(f"{field}: {fault}") from None


def _file_text(rules: NodeRules, path: str, field: str) -> str:
    """Return the text of a file, less one line end."""
    place = f"{field}: file://{path}"
    try:
        data = _regular_file(_permitted(rules, path, field, place), rules.private, field)
    except (OSError, ValueError, RuntimeError) as fault:
        _unreadable(place, fault)
    if data is None or len(data) > MAX_FILE_BYTES:
        what = "is no regular file" if data is None else f"is over {MAX_FILE_BYTES} bytes"
        raise ServerUnavailable(f"{place} {what}")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ServerUnavailable(f"{place} is not UTF-8 text") from None


def _usable_file(rules: NodeRules, path: str, field: str) -> str:
    """Return the real path of a regular file: to open a pipe instead could wait for ever."""
    place = f"{field}: {path}"
    try:
        real_path = _permitted(rules, path, field, place)
        found = Path(real_path).stat()
    except (OSError, ValueError, RuntimeError) as fault:
        _unreadable(place, fault)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_CERTIFICATE_BYTES:
        raise ServerUnavailable(f"{place} is no regular file of at most 1 MiB")
    return real_path


def _permitted(rules: NodeRules, path: str, field: str, place: str) -> str:
    """Return the path without links, if records may read what is there."""
    if not path.startswith("/"):
        raise ServerUnavailable(f"{place} must name an absolute path")
    real_path = str(Path(path).resolve())
    if is_private(real_path, rules.private):
        _deny_private(field)
    if not rules.allows_file(real_path):
        raise LaunchDenied(
            f"{field}: this node does not let records read the file {real_path}; "
            + permit("file", real_path)
        )
    return real_path


def _deny_private(field: str) -> NoReturn:
    raise LaunchDenied(
        f"{field}: this is a file of Bascule's own or of the running system, and no record may "
        "read it, whatever [node] files says"
    )


def refuse_own_places(rules: NodeRules, args: Sequence[str], cwd: str | None) -> None:
    """Raise LaunchDenied where a process is told to work on our own files.

    What it does with a path is not known; a server of files would show them to its callers.
    """
    if cwd is not None and leads_into(str(Path(cwd).resolve()), rules.private):
        _deny_private("stdio.cwd")
    for index, arg in enumerate(args):
        paths = (str(Path(cwd or "/", path).resolve()) for path in _paths_in(arg))
        if any(leads_into(path, rules.private) for path in paths):
            _deny_private(f"stdio.args[{index}]")


def _paths_in(arg: str) -> Iterator[str]:
    """Yield what may be a path in an argument: ``/a``, ``../a``, ``--root=/a``, ``/a:/mounted``."""
    for text in (arg, arg.partition("=")[2], arg.rpartition("=")[2]):
        path = text.removeprefix("file://")
        if path.startswith(("/", "../")):
            yield from {path, path.partition(":")[0]}


def _unreadable(place: str, fault: Exception) -> NoReturn:
    reason = fault.strerror if isinstance(fault, OSError) else "not a usable path"
    unresolved(f"{place} cannot be read: {reason}")


def _regular_file(path: str, private: tuple[str, ...], field: str) -> bytes | None:
    """Return a file's bytes up to just over the cap; None for pipes and devices, never waiting."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if is_private_file(found, private):
            _deny_private(field)
        if not stat.S_ISREG(found.st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)


def refuse_nul(field: str, value: str) -> None:
    """Refuse what neither a process nor a header can be given."""
    if "\0" in value:
        raise ServerUnavailable(f"{field}: holds a NUL character, which no process can be given")


def unresolved(message: str) -> NoReturn:
    """Raise for a reference that leads nowhere on this node."""
    raise ServerUnavailable(message, reason="env_missing") from None


def permit(kind: str, entry: str, *, setting: str | None = None) -> str:
    """Say which setting to add to, ready to be copied."""
    name = setting or f"{kind}s"
    also = f"to BASCULE_NODE_{name.upper()}"
    if kind == "egress":
        also = f"start with --allow-egress {shlex.quote(entry)}"
    return f"add {json.dumps(entry, ensure_ascii=False)} to [node] {name}, or {also}"
