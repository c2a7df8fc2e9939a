"""``bascule agents``: the MCP servers of agents, in a running process or in their file.

With ``--file`` the file itself is read and changed, whether or not a process serves it; one that
does follows at once. Without it the process is asked, which also knows how servers stand.
"""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from msgspec import to_builtins

from bascule.cli.command import run_async, show, shown
from bascule.cli.command_line import typed
from bascule.cli.endpoint import api_options, reach
from bascule.cli.parser import (
    Actions,
    Option,
    Parser,
    Run,
    actions_of,
    command,
    many,
    option,
    switch,
)
from bascule.cli.table import Colour, paint, render_table
from bascule.client.http import ApiClient, ApiError
from bascule.manager import edits
from bascule.manager.config import DEFAULTS, SPELLINGS
from bascule.manager.file import AgentsFile, Edit
from bascule.manager.masks import masked_entry
from bascule.model.json import JsonObject, JsonValue
from bascule.model.role import Role
from bascule.wire.api.addresses import AGENT_ENTRIES, AGENT_RECONNECT, AGENT_SERVERS, AGENTS
from bascule.wire.api.agents import AgentList, AgentServers, Reconnect, ServerChanged, ServerView

T = TypeVar("T")

#: A change waits for the servers it concerns; the process has a bound of its own below this.
CHANGE_SECONDS = 60.0
_COLOURS: Mapping[str, Colour] = {
    "connected": "green",
    "failed": "red",
    "connecting": "yellow",
}
_NO_AGENTS = "this process looks after no agents; start it with: {up}"
_ADD_EXAMPLES = """\
  bascule agents add main time -- uvx mcp-server-time
  bascule agents add main docs --url https://mcp.example.com/mcp --header Authorization
  bascule agents add defaults files --env LOG=warn --file agents.toml -- uvx files-server

The command after -- starts the server. The agent "defaults" means all agents.
--env KEY and --header KEY without a value ask for it, so that it is not in the shell history;
a value may contain references: '${NAME}'.
"""


def fill(group: Parser) -> None:
    """Add the commands of ``agents``."""
    actions = actions_of(group)
    one = option("agent", "AGENT", "the servers of this agent", nargs="?")
    _verb(actions, "list", "list the agents and their servers", list_agents, one, _FILE)
    only = option("agent", "AGENT", "this agent only", nargs="?")
    _verb(actions, "status", "show the servers of agents and their state", status, only)
    adding = (*_WHICH, *_server_options())
    _verb(actions, "add", "add a server to an agent", add, *adding, examples=_ADD_EXAMPLES)
    _verb(actions, "update", "change a server of an agent", update, *adding)
    _verb(actions, "remove", "remove a server from an agent", remove, *_WHICH)
    for name, enabled in (("enable", True), ("disable", False)):
        run = partial(switch_server, enabled=enabled)
        _verb(actions, name, f"{name} a server of an agent", run, *_WHICH)
    whose = option("agent", "AGENT", "the agent's id, if several have the name", nargs="?")
    again = "disconnect a server and connect it again"
    _verb(actions, "reconnect", again, reconnect, whose, _NAME)


def _verb(
    actions: Actions, name: str, summary: str, run: Run, *options: Option, examples: str = ""
) -> None:
    api = api_options("--api-url")
    parser = command(actions, name, summary, run, *api, *options, epilog=examples)
    parser.set_defaults(rest=(), file=None)


_NAME = option("name", "NAME", "the server's name")
_FILE = option("--file", "FILE", "edit this file of agents directly")
_WHICH = (option("agent", "AGENT", "the agent's id"), _NAME, _FILE)


def _server_options() -> tuple[Option, ...]:
    return (
        many("--env", "KEY[=VALUE]", "a variable; repeatable", type=_asked),
        option("--cwd", "DIR", "the working directory of its process"),
        option("--url", "URL", "the URL of a remote server"),
        option("--transport", None, "how to reach it (stdio, or http)", choices=sorted(SPELLINGS)),
        many("--header", "KEY[=VALUE]", "a header; repeatable", type=_asked),
        switch("--insecure", "allow plain http to other machines", dest="plain_http"),
        many("--include", "PATTERN", "only these tools; repeatable"),
        many("--exclude", "PATTERN", "not these tools; repeatable"),
        option("--timeout-ms", "MS", "how long a call may take (60000)", type=int),
        switch("--disabled", "disable the server"),
    )


def _asked(text: str) -> tuple[str, str]:
    """Read ``KEY=VALUE``; a bare ``KEY`` has its value asked for, unseen."""
    key, equals, value = text.partition("=")
    if not key:
        raise argparse.ArgumentTypeError(f"{text}: must be KEY=VALUE or KEY")
    return key, value if equals else getpass.getpass(f"{key}: ")


def _given(arguments: argparse.Namespace) -> dict[str, JsonValue]:
    """Return the fields that a command line gives."""
    command: list[str] = list(arguments.rest)
    if command and arguments.url:
        arguments.usage("give one of the two: a command after --, or --url")
    tools = {"include": arguments.include, "exclude": arguments.exclude}
    fields: dict[str, JsonValue] = {
        "transport": arguments.transport,
        "command": command[0] if command else None,
        "args": command[1:],
        "env": dict(arguments.env),
        "cwd": arguments.cwd,
        "url": arguments.url,
        "headers": dict(arguments.header),
        "insecure": arguments.plain_http,
        "timeout_ms": arguments.timeout_ms,
        "tools": {key: patterns for key, patterns in tools.items() if patterns},
    }
    given: dict[str, JsonValue] = {key: value for key, value in fields.items() if value}
    if arguments.disabled:
        given["enabled"] = False
    return given


# --- changing


def add(arguments: argparse.Namespace) -> int:
    """Add a server from the words of a command line."""
    given = _given(arguments)
    if "command" not in given and "url" not in given:
        arguments.usage("give one of the two: a command after --, or --url")
    usual = "stdio" if "command" in given else "http"
    entry = {"name": arguments.name, "transport": usual, **given}
    _, edit = edits.creation(arguments.agent, entry)
    return _change(arguments, "POST", AGENT_ENTRIES, entry, edit)


def update(arguments: argparse.Namespace) -> int:
    """Change the fields that are given, and no others."""
    given = _given(arguments)
    if not given:
        arguments.usage("say what to change")
    if arguments.rest:
        given.setdefault("args", [])  # a new command does not keep the old one's arguments
    return _patch(arguments, given)


def switch_server(arguments: argparse.Namespace, *, enabled: bool) -> int:
    """Switch a server on or off."""
    return _patch(arguments, {"enabled": enabled})


def remove(arguments: argparse.Namespace) -> int:
    """Remove a server of an agent's own."""
    edit = edits.removal(arguments.agent, arguments.name)
    return _change(arguments, "DELETE", _entry(arguments), None, edit)


def reconnect(arguments: argparse.Namespace) -> int:
    """Have the process connect a server anew; fail when it cannot."""
    body = Reconnect(server_name=arguments.name, agent_id=arguments.agent)
    answer = _ask(arguments, ServerChanged, "POST", AGENT_RECONNECT, body=to_builtins(body))
    return _say(arguments, answer)


def _patch(arguments: argparse.Namespace, patch: JsonObject) -> int:
    edit = edits.merge(arguments.agent, arguments.name, patch)
    return _change(arguments, "PATCH", _entry(arguments), patch, edit)


def _entry(arguments: argparse.Namespace) -> str:
    return f"{AGENT_ENTRIES}/{quote(arguments.name, safe='')}"


def _change(
    arguments: argparse.Namespace, method: str, path: str, body: JsonValue, edit: Edit
) -> int:
    """Change the file, or have the process do so."""
    if arguments.file is None:
        query = {"agent_id": arguments.agent}
        answer = _ask(arguments, ServerChanged, method, path, query=query, body=body)
        return _say(arguments, answer)
    run_async(AgentsFile(arguments.file).edit(edit))
    changed = {"agent_id": arguments.agent, "server_name": arguments.name}
    return show(arguments, changed, f"{shown(arguments.file)}: {_changed(arguments)}")


def _say(arguments: argparse.Namespace, answer: ServerChanged) -> int:
    """Print what a change came to."""
    server = answer.server
    return show(arguments, answer, _changed(arguments) if server is None else _table([server]))


def _changed(arguments: argparse.Namespace) -> str:
    return f"changed {shown(str(arguments.agent))}/{shown(arguments.name)}"


# --- looking


def list_agents(arguments: argparse.Namespace) -> int:
    """Print the agents, or the servers of one; from a file, what is configured."""
    if arguments.file is not None:
        return _list_file(arguments)
    if arguments.agent is not None:
        return status(arguments)
    answer = _ask(arguments, AgentList, "GET", AGENTS)
    rows = [
        [shown(one.agent_id), str(one.servers), str(one.connected), str(one.tools)]
        for one in answer.agents
    ]
    table = render_table(["AGENT", "SERVERS", "CONNECTED", "TOOLS"], rows)
    return show(arguments, answer, table, *_problems(answer.problems))


def _list_file(arguments: argparse.Namespace) -> int:
    config = AgentsFile(arguments.file).read().config
    ids = config.ids if arguments.agent is None else (arguments.agent,)
    unknown = [one for one in ids if one != DEFAULTS and one not in config.ids]
    if unknown:
        arguments.usage(f"no agent {unknown[0]!r} (known: {', '.join(config.ids) or 'none'})")
    found = {
        agent_id: config.defaults if agent_id == DEFAULTS else config.servers(agent_id)
        for agent_id in ids
    }
    plain = [
        {"agent_id": one, "servers": [masked_entry(each) for each in servers]}
        for one, servers in found.items()
    ]
    rows = [
        [shown(one), each.name, each.transport or "", "yes" if each.enabled else "no",
         config.origin(one, each.name)]
        for one, servers in found.items()
        for each in servers
    ]  # fmt: skip
    table = render_table(["AGENT", "SERVER", "TRANSPORT", "ENABLED", "FROM"], rows)
    return show(arguments, {"agents": plain}, table)


def status(arguments: argparse.Namespace) -> int:
    """Print how the servers of one agent, or of all, stand."""
    query = {} if arguments.agent is None else {"agent_id": arguments.agent}
    answer = _ask(arguments, AgentServers, "GET", AGENT_SERVERS, query=query)
    return show(arguments, answer, _table(answer.servers), *_problems(answer.problems))


def _problems(problems: Iterable[str]) -> list[str]:
    said = "the file is not used as it is now"
    return [paint(f"{said}: {shown(problem)}", "yellow") for problem in problems]


def _table(servers: Iterable[ServerView]) -> str:
    rows = [
        [
            shown(one.agent_id),
            shown(one.name),
            shown(one.health),
            paint(shown(one.state), _COLOURS.get(one.phase, "dim")),
            str(one.tool_count),
            shown(one.origin),
            shown(one.last_error or "-"),
        ]
        for one in servers
    ]
    header = ["AGENT", "SERVER", "STATUS", "STATE", "TOOLS", "FROM", "LAST ERROR"]
    return render_table(header, rows)


def _ask(
    arguments: argparse.Namespace,
    kind: type[T],
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    body: JsonValue = None,
) -> T:
    changing: Role = "operator" if path == AGENT_RECONNECT else "admin"
    role: Role = "viewer" if method == "GET" else changing

    async def asking() -> T:
        async with reach(arguments, role) as found, found.api() as client:
            try:
                answer = await client.request(
                    method, path, query=query, body=body, seconds=CHANGE_SECONDS
                )
            except ApiError as error:
                if error.code == "not_found" and not await _has_agents(client):
                    words = _NO_AGENTS.format(up=typed("up --agents FILE"))
                    raise ApiError(error.status, error.code, words) from None
                raise
            return client.shaped(answer.body, kind)

    return run_async(asking())


async def _has_agents(client: ApiClient) -> bool:
    try:
        await client.request("GET", AGENTS)
    except ApiError as error:
        return error.code != "not_found"
    return True
