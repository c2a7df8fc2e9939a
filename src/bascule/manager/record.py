"""A server of an agent as the record a bridge works with.

Configuring a server for an agent is the opt-in: the record allows every tool, visibly, unless
``tools.include`` says otherwise. The cap on results and all cleaning are the bridge's.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import fspath

import msgspec

from bascule import server
from bascule.errors import InvalidRecord
from bascule.manager.config import USED, AgentsConfig, AgentTransport, McpServerConfig, read_server
from bascule.model.json import JsonObject
from bascule.model.pattern import pattern_problem
from bascule.model.server import ServerRecord, Transport
from bascule.server import server_record

#: The seed's ``MAX_TOOL_OUTPUT_BYTES``.
MAX_OUTPUT_BYTES = 50_000

_TRANSPORTS: dict[AgentTransport, Transport] = {
    "stdio": "stdio",
    "http": "streamable_http",
    "sse": "http_sse_legacy",
}


def record_of(config: McpServerConfig) -> tuple[ServerRecord, tuple[str, ...]]:
    """Return the record and its warnings; raise InvalidRecord in the entry's own words."""
    if config.transport is None:
        raise InvalidRecord(["transport: is required: stdio, http or sse"])
    include, exclude = config.tools.include, config.tools.exclude
    found = [(i, pattern_problem(pattern)) for i, pattern in enumerate(exclude)]
    wrong = [f"tools.exclude[{i}]: {problem}" for i, problem in found if problem]
    budgets = {
        "connect_timeout_ms": config.connect_timeout_ms,
        "tool_timeout_ms": config.timeout_ms,
        "max_tool_output_bytes": MAX_OUTPUT_BYTES,
    }
    try:
        record, warnings = server_record(
            config.name,
            _TRANSPORTS[config.transport],
            {name: getattr(config, name) for name in USED[config.transport]},
            ("*",) if include is None else include,
            enabled=config.enabled,
            budgets=budgets,
        )
    except InvalidRecord as error:
        wrong = [*(own_words(problem) for problem in error.problems), *wrong]
        raise InvalidRecord(wrong) from None
    if wrong:
        raise InvalidRecord(wrong)
    return record, tuple(own_words(warning) for warning in warnings)


def secret_user(agent_id: str, name: str) -> str:
    """Return what a server of an agent is called where secrets are bound; no record is so."""
    return f"{agent_id}/{name}"


def secret_users(config: AgentsConfig) -> dict[str, ServerRecord]:
    """Return every agent's servers by the names that secrets are bound to."""
    users = {
        secret_user(agent_id, one.name): record_of(one)[0]
        for agent_id in config.ids
        for one in config.servers(agent_id)
    }
    return {user: msgspec.structs.replace(r, server_id=user) for user, r in users.items()}


def checked_entry(plain: JsonObject) -> McpServerConfig:
    """Read an entry whose record a bridge can work with; raise InvalidRecord."""
    config = read_server(plain)
    record_of(config)
    return config


def checked_config(config: McpServerConfig) -> McpServerConfig:
    """Return a configuration made in code, held to the rules of a file; raise InvalidRecord.

    Lists, spellings and paths come to one form, so that what means the same is equal.
    """
    return checked_entry(msgspec.to_builtins(config, enc_hook=fspath))


def check_servers(config: AgentsConfig, source: str | None = None) -> tuple[str, ...]:
    """Return the warnings of all entries; raise InvalidRecord with the problems of all."""
    problems: list[str] = []
    warnings: list[str] = []
    for place, one in config.entries():
        try:
            warnings += [f"{place}.{warning}" for warning in record_of(one)[1]]
        except InvalidRecord as error:
            problems += [f"{place}.{problem}" for problem in error.problems]
    if problems:
        raise InvalidRecord(problems, source=source)
    return tuple(warnings)


def unique(configs: Iterable[McpServerConfig | str]) -> dict[str, McpServerConfig]:
    """Return configurations by name, in order; raise InvalidRecord when a name comes twice."""
    found: dict[str, McpServerConfig] = {}
    for given in configs:
        config = McpServerConfig(name=given) if isinstance(given, str) else given
        if config.name in found:
            raise InvalidRecord([f"server {config.name!r} is given twice"])
        found[config.name] = config
    return found


def own_words(problem: str) -> str:
    """Return a problem with the entry's path: it has no ``stdio`` and ``http`` tables."""
    return server.own_words(problem, {"server_id": "name", "allowed_tools": "tools.include"})
