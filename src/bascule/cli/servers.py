"""``bascule servers``: the servers of a running registry, their state, and the registry's past.

A server's own words are shown through ``render_safe``.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections.abc import Mapping
from functools import partial

from msgspec import to_builtins

from bascule.cli.batch import STANDARD_INPUT, read_input
from bascule.cli.cleanup import add_clean
from bascule.cli.command import show, shown
from bascule.cli.edit import add_allowing_verbs
from bascule.cli.endpoint import ask, verb
from bascule.cli.history import add_past_verbs
from bascule.cli.missed_grants import missed_words
from bascule.cli.next_steps import print_steps, steps_for
from bascule.cli.parser import (
    EXIT_FAILED,
    INSECURE,
    STRICT,
    Actions,
    Parser,
    actions_of,
    many,
    one_of,
    option,
    switch,
)
from bascule.cli.progress import StatusLine
from bascule.cli.records import (
    EXPECTED,
    Noun,
    add_accept_verb,
    add_record_verbs,
    create,
    field,
    given,
    isolation_of,
    patch,
    say_imported,
    table_of,
    words_of,
)
from bascule.cli.sandboxing import (
    NO_TRIAL,
    SANDBOX_OPTIONS,
    YES_OPTION,
    fitted,
    fitted_all,
    with_sandbox,
)
from bascule.cli.table import Colour, paint, render_table, verdict
from bascule.cli.values import pair
from bascule.client.http import TooLate
from bascule.client.registry import TRIAL_SECONDS, RegistryClient
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError
from bascule.files.scan import read_plain
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.server import TRANSPORT_SPELLINGS
from bascule.wire.api.imports import Imported, ImportMode
from bascule.wire.api.records import Plain
from bascule.wire.api.trials import ToolPreviews, Trial
from bascule.wire.new_servers import KEEP_NO_FILES

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
_TEST_EXAMPLES = """\
  bascule servers test notes                    # each step, its time, and why one failed
  bascule servers test notes --timeout 300      # a first start that downloads a lot
  bascule servers test notes --node east        # by this node, of several that follow
"""
_ADD_EXAMPLES = """\
  bascule servers add time --allow 'get_*' -- uvx mcp-server-time
  bascule servers add files --env LOG=warn --env-from API_TOKEN --allow '*' -- uvx files-server
  bascule servers add docs --url https://mcp.example.com/mcp --auth-ref '${ENV:DOCS_TOKEN}'
  bascule servers add notes --sandbox no-access --write /srv/notes --allow '*' -- notes-server

Without --allow no tool may be called. The command after -- starts the server, which is tried
inside its sandbox before it is written. A task has a process of it to itself (--sharing).
A value of --env or --header may contain references: '${ENV:NAME}'.
"""


def _allowed(record: Plain) -> str:
    return shown(" ".join(words_of(record.get("allowed_tools")))) or paint("nothing", "yellow")


_SERVER = option("id", "ID", "the server")


def fill(group: Parser) -> None:
    """Add the commands of ``servers``."""
    actions = actions_of(group)
    add_record_verbs(actions, SERVERS)
    add_accept_verb(actions, SERVERS)
    _fill_add(actions)
    for name, enabled in (("enable", True), ("disable", False)):
        run = partial(switch_server, enabled=enabled)
        verb(actions, name, f"{name} a server", run, _SERVER, EXPECTED)
    only = option("id", "ID", "this server only", nargs="?")
    verb(actions, "status", "show the connections of the servers", status, only)
    patience = option(
        "--timeout",
        "SECONDS",
        f"give up after this ({TRIAL_SECONDS:.0f})",
        type=float,
        default=TRIAL_SECONDS,
    )
    node = option("--node", "NAME", "ask this node; otherwise one that can answer")
    trial = "make a node connect to a server and list its tools"
    verb(actions, "test", trial, test, _SERVER, node, patience, examples=_TEST_EXAMPLES)
    preview = "list the tools of a server, and which are allowed"
    verb(actions, "tools", preview, tools, _SERVER, node, patience)
    add_import_verb(actions)
    add_allowing_verbs(actions)
    add_clean(actions)
    add_past_verbs(actions)


def _fill_add(actions: Actions) -> None:
    parser = verb(
        actions, "add", "add a server", add, examples=_ADD_EXAMPLES, url=("--api-url",)
    ).takes(
        option("id", "NAME", "its name: a-z, then a-z 0-9 _ -"),
        many("--allow", "PATTERN", "tools that may be called; repeatable"),
        many("--tag", "TAG", "a tag that tasks can select by; repeatable"),
        option("--display-name", "TEXT", "a display name"),
        switch("--disabled", "add it disabled"),
        many("--env", "KEY=VALUE", "a variable; repeatable", type=pair),
        many("--env-from", "VAR", "pass on a variable of the node; repeatable"),
        option("--cwd", "DIR", "the working directory of its process"),
        option("--url", "URL", "the URL of a remote server"),
        option("--transport", None, "how to reach the URL (http)", choices=_REMOTE),
        many("--header", "KEY=VALUE", "a header; repeatable", type=pair),
        option("--auth-ref", "REF", "where its bearer token is: ${ENV:X}, secret://…"),
        *SANDBOX_OPTIONS,
        YES_OPTION,
        NO_TRIAL,
        INSECURE,
        STRICT,
    )
    parser.usage = "bascule servers add NAME [options] -- COMMAND... | --url URL [options]"
    parser.set_defaults(rest=())


# --- add and switch


def add(arguments: argparse.Namespace) -> int:
    """Add a server from the words of a command line."""
    record = with_sandbox(arguments, _record(arguments))
    record = ask(arguments, lambda registry: fitted(registry, record, arguments), "admin")
    code = create("server", arguments, record)
    if not arguments.allow:
        print(f"no tool of {arguments.id} may be called yet", file=sys.stderr)
    print_steps(
        ask(arguments, lambda registry: steps_for(registry, [arguments.id], arguments), "admin")
    )
    return code


def _record(arguments: argparse.Namespace) -> JsonObject:
    command: list[str] = list(arguments.rest)
    if bool(command) == bool(arguments.url):
        arguments.usage("give one of the two: a command after --, or --url")
    named = given(
        allowed_tools=arguments.allow, tags=arguments.tag, display_name=arguments.display_name
    )
    reached = _stdio(arguments, command) if command else _http(arguments)
    return {"server_id": arguments.id, "enabled": not arguments.disabled, **named, **reached}


def _stdio(arguments: argparse.Namespace, command: list[str]) -> dict[str, JsonValue]:
    if arguments.header or arguments.auth_ref or arguments.insecure or arguments.transport:
        arguments.usage("--header, --auth-ref, --insecure and --transport go with --url")
    more = given(env=dict(arguments.env), env_from=arguments.env_from, cwd=arguments.cwd)
    stdio = {"command": command[0], "args": command[1:], **more}
    return {"transport": "stdio", "stdio": stdio}


def _http(arguments: argparse.Namespace) -> dict[str, JsonValue]:
    if arguments.env or arguments.env_from or arguments.cwd:
        arguments.usage("--env, --env-from and --cwd go with a command")
    more = given(
        headers=dict(arguments.header), insecure=arguments.insecure, auth_ref=arguments.auth_ref
    )
    http = {"url": arguments.url, **more}
    return {"transport": arguments.transport or "streamable_http", "http": http}


def switch_server(arguments: argparse.Namespace, *, enabled: bool) -> int:
    """Switch a server on or off."""
    return patch("server", arguments, {"enabled": enabled})


# --- looking


def status(arguments: argparse.Namespace) -> int:
    """Print how each server's connection stands."""
    if arguments.id is None:
        records = ask(arguments, lambda registry: registry.list("server")).items
    else:
        records = (ask(arguments, lambda registry: registry.get("server", arguments.id)),)
    keys = ("server_id", "enabled", "status")
    plain = {"servers": [{key: record.get(key) for key in keys} for record in records]}
    table = render_table(_STATUS, [_status_row(record) for record in records], none="no servers")
    remarks = [remark for record in records for remark in _remarks(record)]
    return show(arguments, plain, table, *([""] if remarks else []), *remarks)


def _status_row(record: Plain) -> list[str]:
    state = table_of(record, "status")
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


def _remarks(record: Plain) -> list[str]:
    """Return what is too long for a cell: what a start does, the last error, the isolation."""
    state = table_of(record, "status")
    said = state.get("starting") or state.get("last_error")
    lines = [str(said)] if said else []
    return [shown(f"{record.get('server_id')}: {line}") for line in (*lines, *isolation_of(state))]


def _health(record: Plain) -> str:
    return _painted(str(table_of(record, "status").get("health") or "-"), _HEALTH)


def _state(record: Plain) -> str:
    if record.get("enabled") is False:
        return paint("disabled", "dim")
    status = table_of(record, "status")
    state = _painted(str(status.get("state", "unknown")), _COLOURS)
    trouble = status.get("trouble")
    return state if trouble is None else f"{state} ({shown(str(trouble))})"


def _isolation(record: Plain) -> str:
    """Return the level in force: known once a local server has started, none where it has none."""
    status = table_of(record, "status")
    standing = table_of(status, "sandbox")
    if standing:
        level = str(standing.get("in_force"))
        return paint(level, "yellow") if level in KEEP_NO_FILES else shown(level)
    runs = record.get("transport") == "stdio" and status.get("state") == "connected"
    return paint("none", "yellow") if runs else "-"


def _painted(word: str, colours: Mapping[str, Colour]) -> str:
    return paint(word, colours[word]) if word in colours else shown(word)


def _where(record: Plain) -> str:
    http, stdio = record.get("http"), record.get("stdio")
    if is_object(http):
        return shown(str(http.get("url")))
    if is_object(stdio):
        return shown(shlex.join([str(stdio.get("command")), *words_of(stdio.get("args"))]))
    return "-"


SERVERS = Noun(
    "server",
    {
        "server": field("server_id"),
        "status": _health,
        "state": _state,
        "isolation": _isolation,
        "at": _where,
        "allowed": _allowed,
        "tags": field("tags"),
        "file": field("owner"),
    },
)


def test(arguments: argparse.Namespace) -> int:
    """Have a node try a server; exit 1 when it is not well."""
    seconds: float = arguments.timeout
    node: str | None = arguments.node
    trial = ask(
        arguments, lambda registry: tried(registry, arguments.id, seconds, node=node), "operator"
    )
    plain = {"server_id": arguments.id, **to_builtins(trial)}
    if not trial.ok:
        message = f"failed after {trial.duration_ms:.0f} ms: {shown(str(trial.error))}"
        said = [f"  stderr: {shown(line)}" for line in trial.stderr]
        said += [f"  {shown(line)}" for line in missed_words(trial.missed)]
        failed = paint(message, "red", sys.stderr)
        show(arguments, plain, notes=[*_steps(trial), *said, failed])
        return EXIT_FAILED
    took = f"{trial.duration_ms:.0f} ms, protocol {shown(str(trial.protocol))}"
    well = f"{paint('ok', 'green')}: {trial.tool_count} tools in {took}"
    return show(arguments, plain, *_steps(trial), well, shown(" ".join(trial.tools)))


def _steps(trial: Trial) -> list[str]:
    """Return the steps that were taken; why the last one failed is said beside them."""
    return [
        f"  {one.step:<9} {one.duration_ms:8.1f} ms  {shown(one.message) if one.ok else 'failed'}"
        for one in trial.steps
    ]


def tools(arguments: argparse.Namespace) -> int:
    """Print a server's tools after the filter, with what decided."""
    seconds: float = arguments.timeout
    node: str | None = arguments.node
    found = ask(
        arguments,
        lambda registry: registry.tools(arguments.id, node=node, seconds=seconds),
        "operator",
    )
    rows = [
        [shown(tool.tool), verdict(tool.allowed), *map(shown, (tool.name, tool.layer, tool.reason))]
        for tool in found
    ]
    table = render_table(("tool", "verdict", "name", "layer", "reason"), rows, none="no tools")
    return show(arguments, ToolPreviews(arguments.id, found), table)


_IMPORT_EXAMPLES = """\
  bascule servers import ~/.cursor/mcp.json --preview
  bascule servers import .mcp.json --allow 'read_*' --allow 'search_*'

Reads the files of Claude Desktop, Claude Code, Cursor and VS Code. Such a file does not say which
tools may be called, so without --allow no tool may be called. A server that already exists keeps
its allowed tools and everything else, except how it is started or reached. A new local server is
tried inside its sandbox before anything is written.
"""


def add_import_verb(actions: Actions) -> None:
    summary = "import the servers of a client's mcp.json"
    verb(actions, "import", summary, import_client, examples=_IMPORT_EXAMPLES).takes(
        option("file", "FILE", "the client's file; - for standard input"),
        many("--allow", "PATTERN", "tools of each new server that may be called; repeatable"),
        one_of(
            switch("--preview", "print what would change, and exit"),
            switch("--replace", "also remove the other servers"),
        ),
        YES_OPTION,
        NO_TRIAL,
        STRICT,
    )


def import_client(arguments: argparse.Namespace) -> int:
    """Take a client's servers in, in one revision."""
    piped = arguments.file == STANDARD_INPUT
    content = read_input(relaxed=True) if piped else read_plain(arguments.file, relaxed=True)
    imported, steps = ask(
        arguments, lambda registry: _imported(registry, content, arguments), "admin"
    )
    code = say_imported(arguments, imported)
    print_steps(steps)
    return code


async def _imported(
    registry: RegistryClient, content: JsonObject, arguments: argparse.Namespace
) -> tuple[Imported, list[str]]:
    mode: ImportMode = "preview" if arguments.preview else "upsert"
    if arguments.replace:
        mode = "replace"
    chosen = [] if mode == "preview" else await fitted_all(registry, content, arguments)
    imported = await registry.take_in(content, mode, allow=arguments.allow, strict=arguments.strict)
    if mode == "preview":
        return imported, []
    for record in chosen:
        fields = {"sandbox": record["sandbox"]}
        await registry.patch("server", str(record["server_id"]), fields)
    return imported, await steps_for(registry, _touched(imported), arguments)


def _touched(imported: Imported) -> list[str]:
    servers = [change for change in imported.diff.changes if change.kind == "server"]
    return [key for change in servers for key in (*change.added, *change.changed)]


_LOOK_SECONDS = 0.5


async def tried(
    registry: RegistryClient, server_id: str, seconds: float, *, node: str | None = None
) -> Trial:
    """Have a node try a server; one that takes longer is a failure that says what it is doing."""
    line = StatusLine()
    began = SYSTEM_CLOCK.monotonic()
    async with line.waiting(f"testing {server_id}"):
        following = asyncio.create_task(_follow(registry, server_id, line, SYSTEM_CLOCK))
        try:
            return await registry.test(server_id, node=node, seconds=seconds)
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
        record = await registry.get("server", server_id)
    except BasculeError:
        return None
    words = table_of(record, "status").get("starting")
    return words if isinstance(words, str) else None
