"""From a section's configuration to server records, and the values that stand behind them.

The literal values of env and headers are kept out of the records: a record refers to a variable
that only this section's bridge knows. So no record, event or log can show them, and what a server
says of its own credentials is masked on the way back.
"""

from __future__ import annotations

import os
import re
from collections import ChainMap
from collections.abc import Iterable, Mapping

from bascule.errors import InvalidRecord
from bascule.model.json import JsonObject
from bascule.model.reference import looks_like_a_credential, names_a_credential, parse_stored
from bascule.model.server import ServerRecord
from bascule.outbound.references import SecretSource
from bascule.policy.leak_keys import secret_value
from bascule.section.config import McpServerConfig, SseTransport, StdioTransport
from bascule.section.errors import McpConfigError
from bascule.server import server_record

CONNECT_SECONDS = 15.0
_SCHEME = re.compile(r"(?:(?:bearer|basic|token|apikey)\s+)?", re.IGNORECASE)


class Vault:
    """The literal values of a section, by the names that its records use for them.

    With ``secrets`` a value ``secret://name`` is no literal, but what they give for that name.
    """

    def __init__(self, secrets: SecretSource | None = None) -> None:
        self._values: dict[str, str] = {}
        self.secrets = secrets

    @property
    def environ(self) -> Mapping[str, str]:
        """Return the variables as the bridge sees them: this process's own, and these."""
        return ChainMap(self._values, os.environ)

    def reference(self, value: str, *, secret: bool) -> str:
        """Keep a value and return what stands for it in a record."""
        stored = None if self.secrets is None else parse_stored(value)
        if stored is not None and stored.scheme == "secret":
            return value
        scheme = _SCHEME.match(value)
        start = scheme.end() if scheme else 0  # a server that echoes the token omits its scheme
        name = f"MCP_SECTION_{len(self._values)}{'_SECRET' if secret else ''}"
        self._values[name] = value[start:]
        return f"{value[:start]}${{ENV:{name}}}"


def records_of(
    servers: Iterable[McpServerConfig], vault: Vault, sandbox: JsonObject | None = None
) -> list[ServerRecord]:
    """Return one record per server; raise McpConfigError naming what cannot be used.

    ``sandbox`` is for those that are started here.
    """
    return [_record(server, vault, sandbox) for server in servers]


def qualified(tools: Iterable[tuple[McpServerConfig, Iterable[str]]]) -> tuple[str, ...]:
    """Return patterns over the servers' own tools, whatever stands in their names."""
    return tuple(f"{server.server_id}/{tool}" for server, names in tools for tool in names)


def _record(server: McpServerConfig, vault: Vault, sandbox: JsonObject | None) -> ServerRecord:
    milliseconds = max(1, round(server.timeout * 1000))
    tools = server.enabled_tools
    shown = ("*",) if tools is None else qualified([(server, tools)])
    budgets = {
        "tool_timeout_ms": milliseconds,
        "connect_timeout_ms": max(milliseconds, round(CONNECT_SECONDS * 1000)),
    }
    # What a tool promises is a type here: an answer of another shape is a failure.
    hygiene = {"output_schema": "refuse"}
    spoken, place = _place(server, vault)
    fields: dict[str, object] = {"budgets": budgets, "hygiene": hygiene}
    if spoken == "stdio" and sandbox is not None:
        fields["sandbox"] = sandbox
    try:
        return server_record(server.server_id, spoken, place, shown, **fields)[0]
    except InvalidRecord as error:
        raise McpConfigError(f"server {server.name!r}: {error}") from None


def _place(server: McpServerConfig, vault: Vault) -> tuple[str, dict[str, object]]:
    """Return the transport, and how the server is started or reached by it."""
    transport = server.transport
    if isinstance(transport, StdioTransport):
        return "stdio", {
            "command": _literal(transport.command, vault),
            "args": [_literal(arg, vault) for arg in transport.args],
            "env": _hidden(server.env, vault),
            "cwd": transport.cwd,
        }
    spoken = "http_sse_legacy" if isinstance(transport, SseTransport) else "streamable_http"
    headers = _hidden(transport.headers, vault)
    return spoken, {"url": _escaped(transport.url), "headers": headers}


def _hidden(values: Mapping[str, str], vault: Vault) -> dict[str, str]:
    return {
        name: vault.reference(value, secret=_is_secret(name.replace("-", "_"), value))
        for name, value in values.items()
    }


def _is_secret(name: str, value: str) -> bool:
    """Say whether a value is to be masked in results: by its name, or by its looks.

    To mask every value would ruin ordinary text: a server that was told its folder speaks of it.
    """
    return (
        names_a_credential(name)
        or looks_like_a_credential(value)
        or secret_value(name, value, quoted=False)
    )


def _literal(text: str, vault: Vault) -> str:
    """Return a text as a record writes it; one that would read as a reference goes round it."""
    return _escaped(text) if parse_stored(text) is None else vault.reference(text, secret=False)


def _escaped(text: str) -> str:
    return text.replace("$", "$$")
