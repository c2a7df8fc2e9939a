"""What a file of agents says: servers for every agent, and servers of one.

    [[defaults.mcp]]        every agent has these
    [[agents]]
    id = "main"
    [[agents.mcp]]          this agent's own; one of a default's name takes its place

A key that means nothing here is a mistake and is reported as one, with the key that was meant: an
ignored section is an agent without tools and nobody knows why. All problems are reported at once.
References (``${NAME}``) stay as they are; the bridge resolves them when it connects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, inspect

from bascule.errors import InvalidRecord
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.keyword import refuse_text
from bascule.model.server import (
    HeaderName,
    Milliseconds,
    NonEmpty,
    ServerId,
    ToolPattern,
    VariableName,
)
from bascule.wire.collector import Findings, collect

AgentTransport = Literal["stdio", "http", "sse"]
Origin = Literal["defaults", "agent", "override"]
#: Stands for ``[[defaults.mcp]]`` wherever an agent's id is asked for; no agent may be called so.
DEFAULTS = "defaults"
AGENT_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
AgentId = Annotated[
    str, Meta(pattern=AGENT_ID_PATTERN, description="a word of A-Z a-z 0-9 _ . -, up to 64")
]

SPELLINGS: Mapping[str, AgentTransport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable_http": "http",
    "streamable-http": "http",
    "sse": "sse",
    "http_sse_legacy": "sse",
}
_OF_A_PROCESS = ("command", "args", "env", "cwd")
_OF_A_URL = ("url", "headers", "insecure")
#: The fields of a transport; the first one is needed.
USED: Mapping[AgentTransport, tuple[str, ...]] = {
    "stdio": _OF_A_PROCESS,
    "http": _OF_A_URL,
    "sse": _OF_A_URL,
}
_BOTH = "[[defaults.mcp]] for every agent, or [[agents.mcp]] below one [[agents]]"
_MISPLACED: Mapping[str, str] = {
    **dict.fromkeys(("mcp", "mcp_servers", "mcp-servers", "mcpServers", "servers"), _BOTH),
    "agent": "[[agents]]",
    "default": "[defaults]",
}
_MEANT: Mapping[str, str] = {
    "allowed_tools": "tools.include",
    "cmd": "command",
    "disabled": "enabled = false",
    "disabled_tools": "tools.exclude",
    "enabled_tools": "tools.include",
    "env_from": 'env, with values like "${NAME}"',
    "environment": "env",
    "exclude": "tools.exclude",
    "http": "url and headers, in the entry itself",
    "id": "name",
    "include": "tools.include",
    "server_id": "name",
    "stdio": "command, args and env, in the entry itself",
    "timeout": "timeout_ms",
    "type": "transport",
    "working_dir": "cwd",
}


class ToolFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which tools of a server an agent gets, by the server's own names with ``*`` and ``?``."""

    include: tuple[ToolPattern, ...] | None = None
    exclude: tuple[ToolPattern, ...] = ()

    def __post_init__(self) -> None:
        refuse_text("ToolFilter", include=self.include, exclude=self.exclude)


class McpServerConfig(
    Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True
):
    """One server of an agent. Over a bridge that was given, ``transport`` is left out."""

    name: ServerId
    transport: AgentTransport | None = None
    enabled: bool = True
    command: NonEmpty | None = None
    args: tuple[str, ...] = ()
    env: Mapping[VariableName, str] = {}
    cwd: NonEmpty | None = None
    url: NonEmpty | None = None
    headers: Mapping[HeaderName, str] = {}
    insecure: bool = False
    timeout_ms: Milliseconds = 60_000
    connect_timeout_ms: Milliseconds = 15_000
    tools: ToolFilter = ToolFilter()

    def __repr__(self) -> str:
        """Return no value of it: any may be a credential."""
        return f"McpServerConfig(name={self.name!r}, transport={self.transport!r})"


class AgentConfig(Struct, frozen=True):
    """One agent, and the servers that are its own."""

    id: AgentId
    mcp: tuple[McpServerConfig, ...] = ()


class AgentsConfig(Struct, frozen=True, kw_only=True):
    """All agents of one file."""

    defaults: tuple[McpServerConfig, ...] = ()
    agents: tuple[AgentConfig, ...] = ()
    warnings: tuple[str, ...] = ()

    def entries(self) -> Iterator[tuple[str, McpServerConfig]]:
        """Yield every entry of the file with its place."""
        for i, one in enumerate(self.defaults):
            yield f"defaults.mcp[{i}]", one
        for a, agent in enumerate(self.agents):
            for i, one in enumerate(agent.mcp):
                yield f"agents[{a}].mcp[{i}]", one

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the agents' ids, in the file's order."""
        return tuple(agent.id for agent in self.agents)

    def own(self, agent_id: str) -> tuple[McpServerConfig, ...]:
        """Return what is written for one agent, or for all of them (``defaults``)."""
        if agent_id == DEFAULTS:
            return self.defaults
        return next(agent.mcp for agent in self.agents if agent.id == agent_id)

    def servers(self, agent_id: str) -> tuple[McpServerConfig, ...]:
        """Return an agent's servers: the defaults and its own."""
        return resolved(self.defaults, self.own(agent_id))

    def origin(self, agent_id: str, name: str) -> Origin:
        """Say where an agent has a server from."""
        if name not in {config.name for config in self.own(agent_id)}:
            return "defaults"
        shared = name in {config.name for config in self.defaults}
        return "override" if shared and agent_id != DEFAULTS else "agent"


def resolved(
    defaults: Iterable[McpServerConfig], own: Iterable[McpServerConfig]
) -> tuple[McpServerConfig, ...]:
    """Return the defaults, each replaced in place by an own one of its name, and then the rest."""
    by_name = {config.name: config for config in defaults}
    by_name.update({config.name: config for config in own})
    return tuple(by_name.values())


def read_agents(
    plain: JsonObject, *, source: str | None = None, shared: bool = False
) -> AgentsConfig:
    """Read the plain values of a file; raise InvalidRecord with every problem.

    ``shared`` says that the file is a host application's own: keys besides ``defaults.mcp``,
    ``agents.id`` and ``agents.mcp`` are then left alone, unless they are known slips.
    """
    reader = _Reader(shared=shared)
    config = reader.read(plain)
    if reader.findings.problems:
        raise InvalidRecord(reader.findings.problems, source=source)
    return config


def read_server(plain: JsonObject) -> McpServerConfig:
    """Read one entry; raise InvalidRecord with every problem."""
    reader = _Reader(shared=False)
    config = reader.entry(plain, "")
    if config is None:
        raise InvalidRecord(reader.findings.problems)
    return config


def plain_entry(config: McpServerConfig) -> dict[str, JsonValue]:
    """Return an entry as plain values, defaults left out."""
    plain: dict[str, JsonValue] = msgspec.json.decode(
        msgspec.json.encode(config)
    )  # lists, not tuples
    return plain


class _Reader:
    """Reads one file; what is wrong gathers in ``findings``."""

    def __init__(self, *, shared: bool) -> None:
        self.findings = Findings(strict=True)
        self._shared = shared

    def read(self, plain: JsonObject) -> AgentsConfig:
        self._other_keys(plain, "", ("defaults", "agents"))
        defaults = self._table(plain.get("defaults", {}), "defaults", "[defaults]")
        self._other_keys(defaults, "defaults", ("mcp",))
        shared = self._entries(defaults.get("mcp", ()), "defaults.mcp", "[[defaults.mcp]]")
        agents = self._agents(plain.get("agents", ()))
        return AgentsConfig(defaults=shared, agents=agents)

    def entry(self, value: JsonValue, path: str) -> McpServerConfig | None:
        before = len(self.findings.problems)
        clean = collect(_described(McpServerConfig), self._normal(value, path), path, self.findings)
        if len(self.findings.problems) > before or not is_object(clean):
            return None
        config = msgspec.convert(clean, McpServerConfig)
        self._fits(config, path)
        return config if len(self.findings.problems) == before else None

    def _agents(self, value: JsonValue) -> tuple[AgentConfig, ...]:
        agents: dict[str, AgentConfig] = {}
        for path, table in self._tables(value, "agents", "[[agents]]"):
            self._other_keys(table, path, ("id", "mcp"))
            agent_id = self._agent_id(table, path)
            mcp = self._entries(table.get("mcp", ()), f"{path}.mcp", "[[agents.mcp]]")
            if agent_id in agents:
                self.findings.problem(f"{path}.id", f"a second agent is called {agent_id!r}")
            agents[agent_id] = AgentConfig(agent_id, mcp)
        return tuple(agents.values())

    def _agent_id(self, table: JsonObject, path: str) -> str:
        if "id" not in table:
            self.findings.problem(f"{path}.id", "is required: it is the agent's name")
            return path
        collect(_described(AgentId), table["id"], f"{path}.id", self.findings)
        if table["id"] == DEFAULTS:
            words = f"{DEFAULTS!r} stands for all agents; choose another"
            self.findings.problem(f"{path}.id", words)
        return str(table["id"])

    def _entries(self, value: JsonValue, path: str, header: str) -> tuple[McpServerConfig, ...]:
        entries: dict[str, McpServerConfig] = {}
        for where, table in self._tables(value, path, header):
            config = self.entry(table, where)
            if config is None:
                continue
            if config.name in entries:
                self.findings.problem(f"{where}.name", f"{config.name!r} is given twice")
            entries[config.name] = config
        return tuple(entries.values())

    def _tables(self, value: JsonValue, path: str, header: str) -> list[tuple[str, JsonObject]]:
        if not is_array(value):
            self.findings.problem(path, f"must be a list of tables: write {header}")
            return []
        return [
            (f"{path}[{index}]", self._table(item, f"{path}[{index}]", header))
            for index, item in enumerate(value)
        ]

    def _table(self, value: JsonValue, path: str, header: str) -> JsonObject:
        if is_object(value):
            return value
        self.findings.problem(path, f"must be a table: write {header}")
        return {}

    def _other_keys(self, table: JsonObject, path: str, known: tuple[str, ...]) -> None:
        for key in table:
            where = _below(path, key)
            if key in known:
                continue
            if key in _MISPLACED:
                self.findings.problem(where, f"is not read; write {_MISPLACED[key]}")
            elif not self._shared:
                self.findings.problem(where, f"unknown key; known here: {', '.join(known)}")

    def _normal(self, value: JsonValue, path: str) -> JsonValue:
        """Bring the spellings of a transport to one; name the key that was meant for a slip."""
        if not is_object(value):
            return value
        plain = dict(value)
        for key in [key for key in plain if key in _MEANT]:
            del plain[key]
            self.findings.problem(_below(path, key), f"unknown key; write {_MEANT[key]}")
        transport = plain.get("transport")
        if isinstance(transport, str):
            plain["transport"] = SPELLINGS.get(transport, transport)
        return plain

    def _fits(self, config: McpServerConfig, path: str) -> None:
        """Check that the fields are those of the transport."""
        if config.transport is None:
            self.findings.problem(_below(path, "transport"), "is required: stdio, http or sse")
            return
        used, by = USED[config.transport], f"by transport {config.transport!r}"
        if getattr(config, used[0]) is None:
            self.findings.problem(_below(path, used[0]), f"is required {by}")
        for field in (*_OF_A_PROCESS, *_OF_A_URL):
            if field not in used and getattr(config, field):
                self.findings.problem(_below(path, field), f"is not used {by}")


_described = cache(inspect.type_info)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
