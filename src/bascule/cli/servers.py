"""``bascule servers``: the servers of a running registry, their state, and the registry's past.

Below: ``records.py`` has the verbs of every kind, ``endpoint.py`` finds the process. Above:
``main``. A server's own words are shown through ``render_safe``.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import to_builtins

from bascule.cli.batch import STANDARD_INPUT, read_input
from bascule.cli.cleanup import add_clean
from bascule.cli.command import print_json, shown
from bascule.cli.edit import add_allowing_verbs, words_of
from bascule.cli.endpoint import ask, verb
from bascule.cli.history import add_past_verbs
from bascule.cli.next_steps import print_steps, steps_for
from bascule.cli.parser import EXIT_FAILED, Actions, actions_of, add_strict
from bascule.cli.progress import StatusLine
from bascule.cli.records import (
    Noun,
    add_accept_verb,
    add_expected,
    add_record_verbs,
    create,
    patch,
    print_rows,
    say_imported,
)
from bascule.cli.table import Colour, paint
from bascule.cli.values import pair
from bascule.client.http import TooLate
from bascule.client.registry import TRIAL_SECONDS, RegistryClient
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError
from bascule.files.scan import read_plain
from bascule.model.json import is_object
from bascule.model.server import TRANSPORT_SPELLINGS
from bascule.wire.api.imports import Imported, ImportMode
from bascule.wire.api.records import Plain
from bascule.wire.api.trials import ToolPreviews, Trial

_STATUS = ("server", "status", "state", "tools", "reconnects", "latency", "nodes")
_HEALTH: Mapping[str, Colour] = {"Connected": "green", "Degraded": "yellow", "Down": "red"}
_COLOURS: Mapping[str, Colour] = {
    "connected": "green",
    "down": "red",
    "parked": "red",
    "degraded": "yellow",
    "reconnecting": "yellow",
    "disabled": "dim",
}
_REMOTE = sorted(spelling for spelling in TRANSPORT_SPELLINGS if spelling != "stdio")
_ADD_EXAMPLES = """\
  bascule servers add time --allow 'get_*' -- uvx mcp-server-time
  bascule servers add files --env LOG=warn --env-from API_TOKEN --allow '*' -- uvx files-server
  bascule servers add docs --url https://mcp.example.com/mcp --auth-ref '${ENV:DOCS_TOKEN}'

Without --allow no tool may be called. The command after -- starts the server.
A value of --env or --header may contain references: '${ENV:NAME}'.
"""


def _row(record: Plain) -> list[str]:
    return [
        shown(str(record.get("server_id"))),
        _health(record),
        _state(record),
        _where(record),
        shown(" ".join(words_of(record.get("allowed_tools")))) or paint("nothing", "yellow"),
        shown(" ".join(words_of(record.get("tags")))) or "-",
        shown(str(record.get("owner") or "")) or "-",
    ]


SERVERS = Noun(
    "server",
    "servers",
    "server_id",
    ("server", "status", "state", "at", "allowed", "tags", "file"),
    _row,
)


def fill(group: argparse.ArgumentParser) -> None:
    """Add the commands of ``servers``."""
    actions = actions_of(group)
    add_record_verbs(actions, SERVERS)
    add_accept_verb(actions, SERVERS)
    _fill_add(actions)
    for name, enabled in (("enable", True), ("disable", False)):
        switch = verb(actions, name, f"{name} a server", partial(switch_server, enabled=enabled))
        switch.add_argument("id", metavar="ID", help="the server")
        add_expected(switch)
    state = verb(actions, "status", "show the connections of the servers", status)
    state.add_argument("id", metavar="ID", nargs="?", help="this server only")
    trial = verb(actions, "test", "make the node connect to a server and list its tools", test)
    preview = verb(actions, "tools", "list the tools of a server, and which are allowed", tools)
    for parser in (trial, preview):
        parser.add_argument("id", metavar="ID", help="the server")
        parser.add_argument(
            "--timeout",
            type=float,
            default=TRIAL_SECONDS,
            metavar="SECONDS",
            help=f"give up after this ({TRIAL_SECONDS:.0f})",
        )
    add_import_verb(actions)
    add_allowing_verbs(actions)
    add_clean(actions)
    add_past_verbs(actions)


def _fill_add(actions: Actions) -> None:
    parser = verb(actions, "add", "add a server", add, examples=_ADD_EXAMPLES, url=("--api-url",))
    parser.usage = "bascule servers add NAME [options] -- COMMAND... | --url URL [options]"
    many: dict[str, Any] = {"action": "append", "default": []}
    option = parser.add_argument
    option("id", metavar="NAME", help="its name: a-z, then a-z 0-9 _ -")
    option("--allow", metavar="PATTERN", help="tools that may be called; repeatable", **many)
    option("--tag", metavar="TAG", help="a tag that tasks can select by; repeatable", **many)
    option("--display-name", metavar="TEXT", help="a display name")
    option("--disabled", action="store_true", help="add it disabled")
    option("--env", metavar="KEY=VALUE", type=pair, help="a variable; repeatable", **many)
    option("--env-from", metavar="VAR", help="pass on a variable of the node; repeatable", **many)
    option("--cwd", metavar="DIR", help="the working directory of its process")
    option("--url", metavar="URL", help="the URL of a remote server")
    option("--transport", choices=_REMOTE, help="how to reach the URL (http)")
    option("--header", metavar="KEY=VALUE", type=pair, help="a header; repeatable", **many)
    option("--auth-ref", metavar="REF", help="where its bearer token is: ${ENV:X}, secret://…")
    option("--insecure", action="store_true", help="allow plain http to other machines")
    add_strict(parser)
    parser.set_defaults(rest=())


# --- add and switch


def add(arguments: argparse.Namespace) -> int:
    """Add a server from the words of a command line."""
    code = create(SERVERS, arguments, _record(arguments))
    if not arguments.allow:
        print(f"no tool of {arguments.id} may be called yet", file=sys.stderr)
    print_steps(ask(arguments, lambda registry: steps_for(registry, [arguments.id], arguments)))
    return code


def _record(arguments: argparse.Namespace) -> dict[str, Any]:
    command: list[str] = list(arguments.rest)
    if bool(command) == bool(arguments.url):
        arguments.usage("give one of the two: a command after --, or --url")
    record: dict[str, Any] = {
        "server_id": arguments.id,
        "allowed_tools": arguments.allow,
        "tags": arguments.tag,
        "enabled": not arguments.disabled,
    }
    if arguments.display_name is not None:
        record["display_name"] = arguments.display_name
    return record | (_stdio(arguments, command) if command else _http(arguments))


def _stdio(arguments: argparse.Namespace, command: list[str]) -> dict[str, Any]:
    if arguments.header or arguments.auth_ref or arguments.insecure or arguments.transport:
        arguments.usage("--header, --auth-ref, --insecure and --transport go with --url")
    stdio: dict[str, Any] = {"command": command[0], "args": command[1:]}
    stdio |= {"env": dict(arguments.env), "env_from": arguments.env_from}
    if arguments.cwd is not None:
        stdio["cwd"] = arguments.cwd
    return {"transport": "stdio", "stdio": stdio}


def _http(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.env or arguments.env_from or arguments.cwd:
        arguments.usage("--env, --env-from and --cwd go with a command")
    http: dict[str, Any] = {"url": arguments.url, "headers": dict(arguments.header)}
    http["insecure"] = arguments.insecure
    if arguments.auth_ref is not None:
        http["auth_ref"] = arguments.auth_ref
    return {"transport": arguments.transport or "streamable_http", "http": http}


def switch_server(arguments: argparse.Namespace, *, enabled: bool) -> int:
    """Switch a server on or off."""
    return patch(SERVERS, arguments, {"enabled": enabled})


# --- looking


def status(arguments: argparse.Namespace) -> int:
    """Print how each server's connection stands."""
    if arguments.id is not None:
        record = ask(arguments, lambda registry: registry.get("server", arguments.id))
        records: tuple[Plain, ...] = (record,)
    else:
        records = ask(arguments, lambda registry: registry.list("server")).items
    if arguments.json:
        keys = ("server_id", "enabled", "status")
        print_json({"servers": [{key: record.get(key) for key in keys} for record in records]})
    else:
        print_rows(_STATUS, [_status_row(record) for record in records], "no servers")
        remarks = [remark for record in records if (remark := _remark(record))]
        if remarks:
            print("", *remarks, sep="\n")
    return 0


def _status_row(record: Plain) -> list[str]:
    found = record.get("status")
    state: Mapping[str, Any] = found if is_object(found) else {}
    count, latency, nodes = (
        state.get(name) for name in ("tool_count", "average_latency_ms", "nodes")
    )
    return [
        shown(str(record.get("server_id"))),
        _health(record),
        _state(record),
        "-" if count is None else str(count),
        str(state.get("reconnects", 0)),
        "-" if latency is None else f"{latency:.1f} ms",
        shown(" ".join(nodes)) if is_object(nodes) and nodes else "-",
    ]


def _remark(record: Plain) -> str:
    """Return what a start is doing, or the last error: too long for a cell of a table."""
    found = record.get("status")
    state: Mapping[str, Any] = found if is_object(found) else {}
    said = state.get("starting") or state.get("last_error")
    return shown(f"{record.get('server_id')}: {said}") if said else ""


def _health(record: Plain) -> str:
    found = record.get("status")
    word = str(found.get("health") or "-") if is_object(found) else "-"
    return paint(word, _HEALTH[word]) if word in _HEALTH else shown(word)


def _state(record: Plain) -> str:
    if record.get("enabled") is False:
        return paint("disabled", "dim")
    found = record.get("status")
    word = str(found.get("state")) if is_object(found) else "unknown"
    state = paint(word, _COLOURS[word]) if word in _COLOURS else shown(word)
    trouble = found.get("trouble") if is_object(found) else None
    return state if trouble is None else f"{state} ({shown(str(trouble))})"


def _where(record: Plain) -> str:
    http, stdio = record.get("http"), record.get("stdio")
    if is_object(http):
        return shown(str(http.get("url")))
    if is_object(stdio):
        return shown(shlex.join([str(stdio.get("command")), *words_of(stdio.get("args"))]))
    return "-"


def test(arguments: argparse.Namespace) -> int:
    """Have a node try a server; exit 1 when it is not well."""
    seconds: float = arguments.timeout
    trial = ask(arguments, lambda registry: tried(registry, arguments.id, seconds))
    if arguments.json:
        print_json({"server_id": arguments.id, **to_builtins(trial)})
    elif trial.ok:
        took = f"{trial.duration_ms:.0f} ms, protocol {shown(str(trial.protocol))}"
        print(f"{paint('ok', 'green')}: {trial.tool_count} tools in {took}")
        print(shown(" ".join(trial.tools)))
    else:
        message = f"failed after {trial.duration_ms:.0f} ms: {shown(str(trial.error))}"
        print(paint(message, "red", sys.stderr), file=sys.stderr)
    return 0 if trial.ok else EXIT_FAILED


def tools(arguments: argparse.Namespace) -> int:
    """Print a server's tools after the filter, with what decided."""
    seconds: float = arguments.timeout
    found = ask(arguments, lambda registry: registry.tools(arguments.id, seconds=seconds))
    if arguments.json:
        print_json(ToolPreviews(arguments.id, found))
        return 0
    rows = [
        [
            shown(tool.tool),
            paint("allowed", "green") if tool.allowed else paint("denied", "red"),
            shown(tool.name),
            shown(tool.layer),
            shown(tool.reason),
        ]
        for tool in found
    ]
    print_rows(("tool", "verdict", "name", "layer", "reason"), rows, "no tools")
    return 0


_IMPORT_EXAMPLES = """\
  bascule servers import ~/.cursor/mcp.json --preview
  bascule servers import .mcp.json --allow 'read_*' --allow 'search_*'

Reads the files of Claude Desktop, Claude Code, Cursor and VS Code. Such a file does not say which
tools may be called, so without --allow no tool may be called. A server that already exists keeps
its allowed tools and everything else, except how it is started or reached.
"""


def add_import_verb(actions: Actions) -> None:
    """Add ``import``."""
    parser = verb(
        actions,
        "import",
        "import the servers of a client's mcp.json",
        import_client,
        examples=_IMPORT_EXAMPLES,
    )
    parser.add_argument("file", metavar="FILE", help="the client's file; - for standard input")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="PATTERN",
        help="tools of each new server that may be called; repeatable",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--preview", action="store_true", help="print what would change, and exit")
    how.add_argument("--replace", action="store_true", help="also remove the other servers")
    add_strict(parser)


def import_client(arguments: argparse.Namespace) -> int:
    """Take a client's servers in, in one revision."""
    given = arguments.file == STANDARD_INPUT
    content = read_input(relaxed=True) if given else read_plain(arguments.file, relaxed=True)
    imported, steps = ask(arguments, lambda registry: _imported(registry, content, arguments))
    code = say_imported(arguments, imported)
    print_steps(steps)
    return code


async def _imported(
    registry: RegistryClient, content: Any, arguments: argparse.Namespace
) -> tuple[Imported, list[str]]:
    mode: ImportMode = "preview" if arguments.preview else "upsert"
    if arguments.replace:
        mode = "replace"
    imported = await registry.take_in(content, mode, allow=arguments.allow, strict=arguments.strict)
    if mode == "preview":
        return imported, []
    return imported, await steps_for(registry, _touched(imported), arguments)


def _touched(imported: Imported) -> list[str]:
    servers = [change for change in imported.diff.changes if change.kind == "server"]
    return [key for change in servers for key in (*change.added, *change.changed)]


_LOOK_SECONDS = 0.5


async def tried(registry: RegistryClient, server_id: str, seconds: float) -> Trial:
    """Have a node try a server; one that takes longer is a failure that says what it is doing."""
    line = StatusLine()
    began = SYSTEM_CLOCK.monotonic()
    async with line.waiting(f"testing {server_id}"):
        following = asyncio.create_task(_follow(registry, server_id, line, SYSTEM_CLOCK))
        try:
            return await registry.test(server_id, seconds=seconds)
        except TooLate as error:
            doing = await _doing(registry, server_id)
            took = (SYSTEM_CLOCK.monotonic() - began) * 1000
            text = f"not there yet: {doing}; that goes on" if doing else str(error)
            return Trial(ok=False, duration_ms=took, error=text)
        finally:
            following.cancel()


async def _follow(registry: RegistryClient, server_id: str, line: StatusLine, clock: Clock) -> None:
    """Keep the status line up to date, where there is one."""
    while line.visible:
        await clock.sleep(_LOOK_SECONDS)
        doing = await _doing(registry, server_id)
        line.say(f"testing {server_id}: {doing}" if doing else f"testing {server_id}")


async def _doing(registry: RegistryClient, server_id: str) -> str | None:
    """Return what a start is doing, as far as the registry has heard of it."""
    try:
        status = (await registry.get("server", server_id)).get("status")
    except BasculeError:
        return None
    words = status.get("starting") if is_object(status) else None
    return words if isinstance(words, str) else None
