"""A client's ``mcp.json`` as server records: Claude Desktop, Claude Code, Cursor, VS Code.

What a client may call was never written down there, so every record comes in with no tool
allowed but those that whoever imports it names. A local server is isolated as new ones are
(``wire.new_servers``). References are translated: ``${env:X}`` and
``${X}`` stay references, ``${input:x}`` (which asks a person) becomes a variable of the node.

``RegistryService.import_records`` validates what this returns, as it does everything else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from bascule.errors import InvalidRecord, refuse_any
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.kinds import Kind
from bascule.model.reference import looks_like_a_credential, names_a_credential
from bascule.wire.new_servers import new_server, ungranted_places

_TRANSPORTS: Mapping[str, str] = {
    "stdio": "stdio",
    "http": "streamable_http",
    "streamable-http": "streamable_http",
    "streamable_http": "streamable_http",
    "streamablehttp": "streamable_http",
    "sse": "http_sse_legacy",
}
_TAKEN = frozenset(
    {"type", "transport", "command", "args", "env", "cwd", "url", "headers", "disabled", "enabled"}
)
_REFERENCE = re.compile(r"\$\{([^}]*)\}|\$\$")
_VARIABLE = re.compile(r"(?:env:|ENV:)?([A-Za-z_][A-Za-z0-9_]*)(:-.*)?", re.DOTALL)
_PLACES: Mapping[str, str] = {
    "userHome": "HOME",
    "workspaceFolder": "WORKSPACE_FOLDER",
    "workspaceFolderBasename": "WORKSPACE_NAME",
}
_LONGEST = 32
_NONE: Mapping[str, JsonObject] = {}


class ClientServers(Struct, frozen=True):
    """The records a client's file comes to, and what a person should know about them."""

    records: tuple[tuple[Kind, JsonObject], ...]
    warnings: tuple[str, ...]


def is_client_config(data: JsonObject) -> bool:
    """Say whether plain values have the form of a client's file."""
    return _servers(data) is not None


def read_client_config(
    data: JsonObject, allow: Sequence[str] = (), sandboxes: Mapping[str, JsonObject] = _NONE
) -> ClientServers:
    """Translate a client's file; raise InvalidRecord with every problem in it.

    ``allow`` are patterns of tools that each of its servers may use; ``sandboxes``, by id, are
    those that differ from what new servers get.
    """
    servers = _servers(data)
    if servers is None:
        raise InvalidRecord(
            ["has neither mcpServers nor servers, so it is not the file of an MCP client"]
        )
    reader = _Reader(allow, sandboxes)
    reader.warnings += _of_projects(data)
    records = [reader.record(str(name), value) for name, value in servers.items()]
    refuse_any(reader.problems)
    return ClientServers(tuple(("server", record) for record in records), tuple(reader.warnings))


def _servers(data: JsonObject) -> JsonObject | None:
    inner: JsonValue = data.get("mcp")  # VS Code's settings.json holds the same below "mcp"
    holders = [data, inner] if is_object(inner) else [data]
    found = [holder.get(name) for holder in holders for name in ("mcpServers", "servers")]
    return next((servers for servers in found if is_object(servers)), None)


def _of_projects(data: JsonObject) -> list[str]:
    """Say which servers Claude Code keeps for one project alone: they are not everybody's."""
    projects: JsonValue = data.get("projects")
    named: JsonObject = projects if is_object(projects) else {}
    return [
        f"projects.{name}: the servers of this project were not imported"
        for name, project in named.items()
        if is_object(project) and is_object(project.get("mcpServers")) and project["mcpServers"]
    ]


class _Reader:
    """Reads one file, remembering names and everything worth saying."""

    def __init__(self, allow: Sequence[str], sandboxes: Mapping[str, JsonObject]) -> None:
        self._allow = allow
        self._sandboxes = sandboxes
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self._ids: dict[str, str] = {}

    def record(self, name: str, value: JsonValue) -> dict[str, JsonValue]:
        """Translate one server."""
        if not is_object(value):
            self.problems.append(f"{name}: must be a table of fields")
            return {}
        transport = self._transport(name, value)
        record: dict[str, JsonValue] = {
            "server_id": self._id(name),
            "display_name": name,
            "transport": transport,
            "allowed_tools": [*self._allow],
        }
        if value.get("disabled") is True or value.get("enabled") is False:
            record["enabled"] = False
        section = "stdio" if transport == "stdio" else "http"
        record[section] = self._section(name, value, section)
        for field in sorted(set(value) - _TAKEN):
            self.warnings.append(f"{name}.{field}: has no meaning here and was left out")
        if (sandbox := self._sandboxes.get(str(record["server_id"]))) is not None:
            record["sandbox"] = sandbox
        self._say_ungranted(name, record)
        return new_server(record)

    def _say_ungranted(self, name: str, record: JsonObject) -> None:
        for place in ungranted_places(record):
            self.warnings.append(
                f"{name}.args: {place} is not granted by its sandbox; if the server works there, "
                "add it to sandbox.write"
            )

    def _transport(self, name: str, value: JsonObject) -> str:
        given = value.get("type", value.get("transport"))
        if given is None:
            return "stdio" if "command" in value else "streamable_http"
        transport = _TRANSPORTS.get(str(given).lower())
        if transport is None:
            self.problems.append(f"{name}.type: {given!r} is not stdio, http or sse")
        return transport or "stdio"

    def _section(self, name: str, value: JsonObject, section: str) -> dict[str, JsonValue]:
        fields = ("command", "args", "env", "cwd") if section == "stdio" else ("url", "headers")
        return {
            field: self._value(f"{name}.{field}", value[field])
            for field in fields
            if field in value
        }

    def _value(self, path: str, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self._text(path, value)
        if is_array(value):
            return [self._value(f"{path}[{i}]", item) for i, item in enumerate(value)]
        if is_object(value):
            return {key: self._entry(path, str(key), item) for key, item in value.items()}
        return str(value) if isinstance(value, int | float) else value

    def _entry(self, path: str, key: str, value: JsonValue) -> JsonValue:
        translated = self._value(f"{path}.{key}", value)
        if isinstance(translated, str) and "${" not in translated and _is_credential(key, value):
            self.warnings.append(
                f"{path}.{key}: holds a credential as plain text; a reference is better"
            )
        return translated

    def _text(self, path: str, text: str) -> str:
        return _REFERENCE.sub(lambda match: self._reference(path, match), text)

    def _reference(self, path: str, match: re.Match[str]) -> str:
        body = match[1]
        if body is None:
            return "$$$$"  # two dollars to a client; a doubled dollar is one of ours
        if body in _PLACES or body.startswith("input:"):
            variable = _PLACES.get(body) or _variable_for(body.removeprefix("input:"))
            self.warnings.append(f"{path}: {match[0]} became ${{ENV:{variable}}}; set it")
            return f"${{ENV:{variable}}}"
        variable = _VARIABLE.fullmatch(body)
        if variable is None:
            self.problems.append(f"{path}: {match[0]!r} has no meaning here")
            return ""
        return f"${{ENV:{variable[1]}{variable[2] or ''}}}"

    def _id(self, name: str) -> str:
        server_id = _id_for(name)
        other = self._ids.setdefault(server_id, name)
        if other != name:
            self.problems.append(f"{name}: would be server {server_id!r}, as {other!r} is")
        return server_id


def _variable_for(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name).upper().lstrip("0123456789") or "INPUT"


def _id_for(name: str) -> str:
    """Make a server id of a client's name: ``GitHub (work)`` becomes ``github-work``."""
    words = re.sub(r"[^a-z0-9_]+", "-", name.lower())
    plain = re.sub(r"_{2,}", "_", words).strip("-_").lstrip("0123456789-_")
    return plain[:_LONGEST].rstrip("-_") or "server"


def _is_credential(key: str, value: JsonValue) -> bool:
    """Say whether a variable or a header holds a credential, by its name or by its looks."""
    name = key.replace("-", "_")
    named = names_a_credential(name) or name.lower().endswith("authorization")
    return named or (isinstance(value, str) and looks_like_a_credential(value))
