"""What a section is told about its servers: how each is reached, and which of its tools are shown.

Values are literals: a ``$`` is a dollar. Those of env and headers are credentials as far as anybody
who prints a configuration is concerned.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypeAlias

from bascule.model.json import is_array, is_object
from bascule.model.reference import looks_like_a_credential, names_a_credential
from bascule.section.errors import McpConfigError

HIDDEN = "***"
LONGEST_TIMEOUT = 3600.0
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_JOINTS = re.compile(r"_{2,}")
_SHORTEST_SECRET = 6
_USERINFO_OR_QUERY = re.compile(r"(?<=://)[^/@\s]*@|[?#].*", re.DOTALL)


class McpCredentialWarning(UserWarning):
    """A credential stands where everybody on the machine can read it."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return is_array(value) and all(map(_is_text, value))


def _is_pairs(value: object) -> bool:
    return is_object(value) and _is_texts([*value, *value.values()])


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_transport(value: object) -> bool:
    return isinstance(value, McpTransport)


#: By the annotation of a field: what it may hold, and how that is said.
_KINDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "str": (_is_text, "a string"),
    "tuple[str, ...]": (_is_texts, "a tuple of strings"),
    "Mapping[str, str]": (_is_pairs, "a mapping of strings"),
    "float": (_is_seconds, "a number of seconds"),
    "McpTransport": (_is_transport, "one of the three transports"),
}


@dataclass(slots=True, frozen=True)
class _Config:
    """Holds what its annotations say: a value of another kind would fail late, far from here."""

    def __post_init__(self) -> None:
        for item in fields(self):
            kind, _, optional = str(item.type).partition(" | ")
            value = getattr(self, item.name)
            if kind not in _KINDS or (optional and value is None):
                continue
            fits, said = _KINDS[kind]
            if not fits(value):
                raise McpConfigError(f"{item.name} must be {said}{' or None' if optional else ''}")

    def _shown(self, **hidden: object) -> str:
        """Return it as text, with other values in the place of those that nobody may read."""
        values = {item.name: getattr(self, item.name) for item in fields(self)} | hidden
        pairs = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"{type(self).__name__}({pairs})"


@dataclass(slots=True, frozen=True, repr=False)
class StdioTransport(_Config):
    """A server that runs as a process of its own and speaks over stdin and stdout."""

    command: str
    args: tuple[str, ...] = ()
    cwd: str | None = None

    def without(self, env: Mapping[str, str]) -> StdioTransport:
        """Return it without arguments that seem to be a credential, or hold one of env."""
        exposed = set(exposed_arguments(self, env))
        args = (HIDDEN if n in exposed else arg for n, arg in enumerate(self.args))
        return replace(self, args=tuple(args))

    def __repr__(self) -> str:
        return self._shown(args=self.without({}).args)


@dataclass(slots=True, frozen=True)
class _HttpTransport(_Config):
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def __repr__(self) -> str:
        url = _USERINFO_OR_QUERY.sub(HIDDEN, self.url)
        return self._shown(url=url, headers=_hidden(self.headers))


@dataclass(slots=True, frozen=True, repr=False)
class SseTransport(_HttpTransport):
    """A server behind the HTTP+SSE of 2024-11-05, which MCP has since replaced."""


@dataclass(slots=True, frozen=True, repr=False)
class StreamableHttpTransport(_HttpTransport):
    """A server behind streamable HTTP. ``method`` is here because the specification has it."""

    method: Literal["GET", "POST"] = "POST"

    def __post_init__(self) -> None:
        _HttpTransport.__post_init__(self)
        if self.method != "POST":
            raise McpConfigError(
                f"method={self.method!r} cannot work: MCP sends every message by POST, and GET "
                'only opens a stream for what the server says by itself; leave method at "POST"'
            )


McpTransport: TypeAlias = StdioTransport | SseTransport | StreamableHttpTransport


@dataclass(slots=True, frozen=True, repr=False)
class McpServerConfig(_Config):
    """One server: its name, how it is reached, which tools are shown and for how long they run.

    ``enabled_tools`` and ``disabled_tools`` name tools as the server does; ``*`` and ``?`` work.
    """

    name: str
    transport: McpTransport
    tool_prefix: str | None = None
    enabled_tools: tuple[str, ...] | None = None
    disabled_tools: tuple[str, ...] = ()
    timeout: float = 30.0
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        _Config.__post_init__(self)
        if not _NAME.fullmatch(self.name):
            raise McpConfigError(
                f"the name {self.name!r} must be a lower-case letter and up to 31 of a-z 0-9 _ -"
            )
        if self.tool_prefix == "":
            raise McpConfigError("tool_prefix must not be empty; None stands for the name")
        if not 0.001 <= self.timeout <= LONGEST_TIMEOUT:
            raise McpConfigError(
                f"timeout={self.timeout!r} must be between 0.001 and {LONGEST_TIMEOUT:g} seconds"
            )
        if self.env and not isinstance(self.transport, StdioTransport):
            raise McpConfigError(
                "env is for a server that is started here; for one that is reached over HTTP "
                "put credentials into the transport's headers"
            )
        self._warn_of_credentials()

    @property
    def prefix(self) -> str:
        """Return what the names of its tools begin with."""
        return self.name if self.tool_prefix is None else self.tool_prefix

    @property
    def server_id(self) -> str:
        """Return what a bridge calls it: the name, or a hash of one with ``__``, its joint."""
        if "__" not in self.name:
            return self.name
        digest = hashlib.sha256(self.name.encode("ascii")).hexdigest()[:12]
        return f"{_JOINTS.sub('_', self.name)[:19]}-{digest}"

    def __repr__(self) -> str:
        how = self.transport
        transport = how.without(self.env) if isinstance(how, StdioTransport) else how
        return self._shown(transport=transport, env=_hidden(self.env))

    def _warn_of_credentials(self) -> None:
        if not isinstance(self.transport, StdioTransport):
            return
        for position in exposed_arguments(self.transport, self.env):
            warnings.warn(
                f"server {self.name!r}: args[{position}] looks as if it held a credential, which "
                "shows in the process list; use env",
                McpCredentialWarning,
                stacklevel=4,  # whoever makes the configuration
            )


def exposed_arguments(transport: StdioTransport, env: Mapping[str, str]) -> Iterator[int]:
    """Return the positions of arguments that seem to be credentials, or repeat one of env."""
    known = [
        value
        for name, value in env.items()
        if names_a_credential(name) and len(value) >= _SHORTEST_SECRET
    ]
    before = ""
    for position, arg in enumerate(transport.args):
        if (
            looks_like_a_credential(arg)
            or _asks_for_a_credential(before, arg)
            or any(secret in arg for secret in known)
        ):
            yield position
        before = arg


def _asks_for_a_credential(flag: str, value: str) -> bool:
    """Say whether a value, which is no path, follows a flag such as ``--api-key``."""
    if not flag.startswith("-") or value.startswith(("-", "/", ".", "~")) or "=" in flag:
        return False
    return len(value) >= _SHORTEST_SECRET and names_a_credential(flag.lstrip("-").replace("-", "_"))


def _hidden(values: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(values, HIDDEN)
