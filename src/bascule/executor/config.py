"""The executor's configuration: a static list of servers, in the shape of the specification.

Values are those of a record: ``${VAR}`` is resolved when the server is connected, ``$$`` is a
dollar. A configured server allows every tool: to configure it is the opt-in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from bascule.errors import InvalidRecord
from bascule.model import server as model
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.reference import Stored, parse_value
from bascule.model.secret_use import SecretUse
from bascule.model.server import ServerRecord
from bascule.outbound.references import SecretSource, resolver_of
from bascule.server import own_words, server_record

TransportName = Literal["stdio", "sse", "streamable-http"]
_STDIO_FIELDS = ("command", "args", "env")
_HTTP_FIELDS = ("url", "headers", "auth", "tls", "insecure")
_OWN_NAMES = {"server_id": "name", "budgets.tool_timeout_ms": "timeout"}


class Vault:
    """The literal credentials of one executor, by the names that its records use for them.

    A record refers to a credential and never holds one; the bridge asks here for what it means.
    """

    def __init__(self, others: SecretSource | None = None) -> None:
        self._values: dict[str, str] = {}
        self._others = resolver_of(others)

    def reference(self, text: str) -> str:
        """Return what stands for a credential in a record: a reference as it is, or a new name."""
        try:
            value = parse_value(text)
        except ValueError:
            return text  # the validator says what is wrong
        if not text or isinstance(value, Stored) or value.variables:
            return text
        name = f"executor-{len(self._values)}"
        self._values[name] = value.resolve(lambda _: None)
        return f"secret://{name}"

    async def secret(self, name: str, use: SecretUse) -> str:
        """Return a credential, of our own or of the program; raise KeyError."""
        if name in self._values:
            return self._values[name]
        if self._others is None:
            raise KeyError(name)
        return await self._others.secret(name, use)


class ApiKey(
    Struct, frozen=True, kw_only=True, tag="api_key", tag_field="type", forbid_unknown_fields=True
):
    """A key in a header, as a bearer token unless ``header`` names another place."""

    key: str
    header: str | None = None

    def plain(self, vault: Vault) -> dict[str, JsonValue]:
        """Return it as a record has it."""
        ref = vault.reference(self.key)
        if self.header is None:
            return {"type": "bearer", "ref": ref}
        return {"type": "header", "ref": ref, "header": self.header}

    def __repr__(self) -> str:
        return f"ApiKey(header={self.header!r})"


class ClientCredentials(
    Struct,
    frozen=True,
    kw_only=True,
    tag="oauth_client_credentials",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """OAuth client credentials: a token is fetched, kept and renewed by the bridge."""

    token_url: str
    client_id: str
    client_secret: str
    scopes: tuple[str, ...] = ()

    def plain(self, vault: Vault) -> dict[str, JsonValue]:
        """Return it as a record has it."""
        return {
            "type": "oauth_client_credentials",
            "ref": vault.reference(self.client_secret),
            "token_url": self.token_url,
            "client_id": self.client_id,
            "scopes": list(self.scopes),
        }

    def __repr__(self) -> str:
        return f"ClientCredentials(client_id={self.client_id!r}, token_url={self.token_url!r})"


class Tls(model.Tls, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Certificates for one server, as file paths: its authority, and ours for mutual TLS."""


class McpServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server. Without ``transport`` a command means stdio and a URL streamable HTTP."""

    name: str
    transport: TransportName | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    url: str | None = None
    headers: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    auth: ApiKey | ClientCredentials | None = None
    tls: Tls | None = None
    timeout: float | None = None
    insecure: bool = False

    def record(self, vault: Vault | None = None) -> ServerRecord:
        """Return the record of this server; raise InvalidRecord with every problem.

        ``vault`` keeps the credentials that are written out here.
        """
        transport = self.transport or ("stdio" if self.command else "streamable-http")
        self._refuse_misplaced(transport)
        timeout = self.timeout
        budgets = {} if timeout is None else {"tool_timeout_ms": round(timeout * 1000)}
        place = {"command": self.command, "args": self.args, "env": self.env}
        if transport != "stdio":
            place = {
                "url": self.url,
                "headers": self.headers,
                "insecure": self.insecure,
                "auth": None if self.auth is None else self.auth.plain(vault or Vault()),
                "tls": None if self.tls is None else msgspec.to_builtins(self.tls),
            }
        return server_record(self.name, transport, place, budgets=budgets)[0]

    def _refuse_misplaced(self, transport: str) -> None:
        """Refuse what would have no effect, and what is missing."""
        misplaced = _HTTP_FIELDS if transport == "stdio" else _STDIO_FIELDS
        problems = [
            f"{name}: has no effect with transport {transport!r}"
            for name in misplaced
            if getattr(self, name)
        ]
        needed = "command" if transport == "stdio" else "url"
        if not getattr(self, needed):
            problems.append(f"{needed}: is needed with transport {transport!r}")
        if problems:
            raise InvalidRecord(problems)

    def __repr__(self) -> str:
        return f"McpServerConfig(name={self.name!r}, transport={self.transport!r})"


class McpConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The servers of an executor, in the order in which their tools are offered."""

    servers: tuple[McpServerConfig, ...] = ()

    @classmethod
    def read(cls, plain: JsonObject) -> McpConfig:
        """Read ``{"servers": [{"name", "transport", …}]}``; raise InvalidRecord if it is wrong.

        Field names may be written as the specification has them: ``Servers``, ``Name``, ``URL``.
        """
        try:
            return msgspec.convert(_lower(plain, cls), cls)
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$")
            raise InvalidRecord([f"{path.strip('.`') or 'configuration'}: {message}"]) from None

    def records(self, vault: Vault | None = None) -> list[ServerRecord]:
        """Return the servers' records; raise InvalidRecord with the problems of all of them."""
        problems: list[str] = []
        records: list[ServerRecord] = []
        for index, server in enumerate(self.servers):
            try:
                records.append(server.record(vault))
            except InvalidRecord as error:
                own = [own_words(problem, _OWN_NAMES) for problem in error.problems]
                problems += [f"servers[{index}].{problem}" for problem in own]
        if problems:
            raise InvalidRecord(problems)
        return records


_NESTED: Mapping[str, type[Struct]] = {"servers": McpServerConfig, "tls": Tls}


def _lower(plain: JsonValue, cls: type[Struct]) -> JsonValue:
    """Return plain values with the names of fields as they are here, whatever their case."""
    if is_array(plain):
        return [_lower(item, cls) for item in plain]
    if not is_object(plain):
        return plain
    own = cls.__struct_fields__
    named = {
        key if key in own or key.lower() not in own else key.lower(): value
        for key, value in plain.items()
    }
    return {
        name: _lower(value, _NESTED[name]) if name in _NESTED else value
        for name, value in named.items()
    }
