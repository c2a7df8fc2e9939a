"""``bascule agents``: the MCP servers of agents, in a running process or in their file.

With ``--file`` the file itself is read and changed, whether or not a process serves it; one that
does follows at once. Without it the process is asked, which also knows how servers stand.
"""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from msgspec import to_builtins

from bascule.cli.command import print_json, run_async, shown
from bascule.cli.command_line import typed
from bascule.cli.endpoint import add_api_options, reach
from bascule.cli.parser import (
    Actions,
    Run,
    actions_of,
    command,
)
from bascule.cli.table import Colour, paint, render_table
from bascule.client.http import ApiClient, ApiError
from bascule.manager import edits
from bascule.manager.config import DEFAULTS, SPELLINGS
from bascule.manager.file import AgentsFile, Edit
from bascule.manager.masks import masked_entry
from bascule.model.json import JsonValue
from bascule.wire.api.addresses import AGENT_ENTRIES, AGENT_RECONNECT, AGENT_SERVERS, AGENTS
from bascule.wire.api.agents import AgentList, AgentServers, Reconnect, ServerChanged, ServerView

T = TypeVar("T")

#: A change waits for the servers it concerns; the process has a bound of its own below this.
CHANGE_SECONDS = 60.0
_COLOURS: Mapping[str, Colour] = {
    "connected": "green",
    "failed": "red",
    "connecting": "yellow",
    "disconnected": "dim",
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


def fill(group: argparse.ArgumentParser) -> None:
    """Add the commands of ``agents``."""
    actions = actions_of(group)
    listing = _verb(actions, "list", "list the agents and their servers", list_agents)
    listing.add_argument("agent", metavar="AGENT", nargs="?", help="the servers of this agent")
    _file(listing)
    state = _verb(actions, "status", "show the servers of agents and their state", status)
    state.add_argument("agent", metavar="AGENT", nargs="?", help="this agent only")
    adding = _verb(actions, "add", "add a server to an agent", add, _ADD_EXAMPLES)
    changing = _verb(actions, "update", "change a server of an agent", update)
    for parser in (adding, changing):
        _which(parser)
        _fields(parser)
    removing = _verb(actions, "remove", "remove a server from an agent", remove)
    _which(removing)
    for name, enabled in (("enable", True), ("disable", False)):
        switching = _verb(
            actions, name, f"{name} a server of an agent", partial(switch, enabled=enabled)
        )
        _which(switching)
    again = _verb(actions, "reconnect", "disconnect a server and connect it again", reconnect)
    again.add_argument(
        "agent", metavar="AGENT", nargs="?", help="the agent's id, if several have the name"
    )
    again.add_argument("name", metavar="NAME", help="the server's name")


def _verb(
    actions: Actions, name: str, summary: str, run: Run, examples: str = ""
) -> argparse.ArgumentParser:
    parser = command(actions, name, summary, run, examples)
    add_api_options(parser, "--api-url")
    parser.set_defaults(rest=(), file=None)
    return parser


def _names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", help="the agent's id")
    parser.add_argument("name", metavar="NAME", help="the server's name")


def _which(parser: argparse.ArgumentParser) -> None:
    _names(parser)
    _file(parser)


def _file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", metavar="FILE", help="edit this file of agents directly")


def _fields(parser: argparse.ArgumentParser) -> None:
    many: dict[str, Any] = {"action": "append", "default": []}
    option = parser.add_argument
    option("--env", metavar="KEY[=VALUE]", type=_asked, help="a variable; repeatable", **many)
    option("--cwd", metavar="DIR", help="the working directory of its process")
    option("--url", metavar="URL", help="the URL of a remote server")
    option("--transport", choices=sorted(SPELLINGS), help="how to reach it (stdio, or http)")
    option("--header", metavar="KEY[=VALUE]", type=_asked, help="a header; repeatable", **many)
    option(
        "--insecure",
        action="store_true",
        dest="plain_http",
        help="allow plain http to other machines",
    )
    option("--include", metavar="PATTERN", help="only these tools; repeatable", **many)
    option("--exclude", metavar="PATTERN", help="not these tools; repeatable", **many)
    option("--timeout-ms", type=int, metavar="MS", help="how long a call may take (60000)")
    option("--disabled", action="store_true", help="disable the server")


def _asked(text: str) -> tuple[str, str]:
    """Read ``KEY=VALUE``; a bare ``KEY`` has its value asked for, unseen."""
    key, equals, value = text.partition("=")
    if not key:
        raise argparse.ArgumentTypeError(f"{text}: must be KEY=VALUE or KEY")
    return key, value if equals else getpass.getpass(f"{key}: ")


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that a command line gives."""
    command: list[str] = list(arguments.rest)
    if command and arguments.url:
        arguments.usage("give one of the two: a command after --, or --url")
    tools = {"include": arguments.include, "exclude": arguments.exclude}
    fields: dict[str, Any] = {
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
    given = {key: value for key, value in fields.items() if value}
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


def switch(arguments: argparse.Namespace, *, enabled: bool) -> int:
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


def _patch(arguments: argparse.Namespace, patch: dict[str, Any]) -> int:
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
    if arguments.json:
        print_json({"agent_id": arguments.agent, "server_name": arguments.name})
    else:
        print(f"{shown(arguments.file)}: changed {shown(arguments.agent)}/{shown(arguments.name)}")
    return 0


def _say(arguments: argparse.Namespace, answer: ServerChanged) -> int:
    """Print what a change came to."""
    if arguments.json:
        print_json(answer)
        return 0
    if answer.server is not None:
        print(_table([answer.server]))
    else:
        print(f"changed {shown(arguments.agent)}/{shown(arguments.name)}")
    return 0


# --- looking


def list_agents(arguments: argparse.Namespace) -> int:
    """Print the agents, or the servers of one; from a file, what is configured."""
    if arguments.file is not None:
        return _list_file(arguments)
    if arguments.agent is not None:
        return status(arguments)
    answer = _ask(arguments, AgentList, "GET", AGENTS)
    if arguments.json:
        print_json(answer)
        return 0
    rows = [
        [shown(one.agent_id), str(one.servers), str(one.connected), str(one.tools)]
        for one in answer.agents
    ]
    print(render_table(["AGENT", "SERVERS", "CONNECTED", "TOOLS"], rows))
    _say_problems(answer.problems)
    return 0


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
    if arguments.json:
        plain = {
            one: [masked_entry(config) for config in servers] for one, servers in found.items()
        }
        print_json({"agents": [{"agent_id": one, "servers": two} for one, two in plain.items()]})
        return 0
    rows = [
        [shown(one), each.name, each.transport or "", "yes" if each.enabled else "no",
         config.origin(one, each.name)]
        for one, servers in found.items()
        for each in servers
    ]  # fmt: skip
    print(render_table(["AGENT", "SERVER", "TRANSPORT", "ENABLED", "FROM"], rows))
    return 0


def status(arguments: argparse.Namespace) -> int:
    """Print how the servers of one agent, or of all, stand."""
    query = {} if arguments.agent is None else {"agent_id": arguments.agent}
    answer = _ask(arguments, AgentServers, "GET", AGENT_SERVERS, query=query)
    if arguments.json:
        print_json(answer)
        return 0
    print(_table(answer.servers))
    _say_problems(answer.problems)
    return 0


def _say_problems(problems: Iterable[str]) -> None:
    for problem in problems:
        print(paint(f"the file is not used as it is now: {shown(problem)}", "yellow"))


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
    async def asking() -> T:
        async with reach(arguments, "admin") as found, found.api() as client:
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
