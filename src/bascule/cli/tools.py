"""``bascule tools``: list, call and explain tools, of files of records or of a running process.

Every word that came from a server is shown through ``render_safe``.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from bascule.cli.command import SESSION_OPTIONS, Plan, print_json, run_async, show, shown, warn
from bascule.cli.command_line import typed
from bascule.cli.endpoint import api_options
from bascule.cli.next_steps import why_none
from bascule.cli.parser import (
    EXIT_FAILED,
    EXIT_REFUSED,
    EXIT_WAITING,
    Parser,
    actions_of,
    command,
    many,
    option,
)
from bascule.cli.progress import StatusLine
from bascule.cli.table import paint, render_table
from bascule.cli.tool_approval import APPROVING, approver_of, asking, how_to_go_on, waiting_options
from bascule.cli.tool_session import Elsewhere, in_session, read_source, way_out
from bascule.cli.values import count, seconds, value_of
from bascule.client.approval_times import body_of
from bascule.model.approval import waiting_of
from bascule.model.call import CallLimits
from bascule.model.code import ErrorCode
from bascule.model.content import media_of, readable
from bascule.model.decision import Decision
from bascule.model.json import JsonValue, is_object
from bascule.model.outcome import Failed, Failure, Outcome, Success, shown_error
from bascule.model.tool import ToolDescriptor
from bascule.node.bridge.session import Session
from bascule.node.bridge.toolset import ToolSet
from bascule.node.contract import ToolSession
from bascule.policy.access import Grant, compile_access
from bascule.policy.characters import render_safe
from bascule.policy.naming import nearest
from bascule.wire.faults import tool_message
from bascule.wire.strict_json import StrictJsonError, loads

_REFUSALS: frozenset[ErrorCode] = frozenset(
    {"mcp_policy_denied", "mcp_approval_required", "mcp_approval_denied"}
)
_UNKNOWN = frozenset({"unknown_server", "unknown_tool", "ambiguous_name"})

_LIST_EXAMPLES = """\
examples:
  bascule tools list
  bascule tools list --task support --json
  bascule tools list --registry-dir mcp.d --task task.json

Without --registry-dir the session belongs to a task of the running process: --task, or the default
task. With it the command opens its own bridge; without --task the session may then use every
enabled server, or those of --server.
"""
_CALL_EXAMPLES = """\
examples:
  bascule tools call mcp__notes__read_note '{"name": "welcome"}'
  bascule tools call notes/read_note --arg name=welcome --registry-dir mcp.d
  bascule tools call notes.list_notes
  bascule tools call notes/write_note @note.json --registry-dir mcp.d --json
  echo '{"name": "welcome"}' | bascule tools call notes/read_note - --registry-dir mcp.d

The value of --arg is read as JSON if it is valid JSON, otherwise as text; quote a text that looks
like JSON: --arg 'id="7"'. If a call needs approval, the command asks on a terminal. At a running
process somebody else approves it: a terminal says how, and waits; Ctrl-C takes the question back.
Exit codes: 0 done, 1 the call failed, 10 refused by policy or not approved, 11 it waits for
approval, 2 wrong usage.
"""
_EXPLAIN_EXAMPLES = """\
examples:
  bascule tools explain mcp__notes__delete_note --task support
  bascule tools explain notes --registry-dir mcp.d --task task.json --json

NAME is a tool in any form, or a server.
Exit codes: 0 it may be used, 10 policy denies it, 1 it does not exist or cannot be reached.
"""


def fill(group: Parser) -> None:
    """Add the commands of ``tools``."""
    actions = actions_of(group)
    common = (*SESSION_OPTIONS, *api_options())
    listing = "the tools a session may use"
    command(actions, "list", listing, list_tools, *common, epilog=_LIST_EXAMPLES)
    command(actions, "call", "call one tool", call, epilog=_CALL_EXAMPLES).takes(
        *common,
        option("name", "NAME", "the tool's name, in any form"),
        option("arguments", "ARGS", "a JSON object, @FILE, or - for standard input", nargs="?"),
        many("--arg", "KEY=VALUE", "one argument; repeatable"),
        option("--timeout", "SECONDS", "give up after this", type=seconds),
        option("--max-output-bytes", "BYTES", "cut the output to this", type=count),
        APPROVING,
        waiting_options(seconds),
    )
    why, name = "why a tool may be used or not", option("name", "NAME", "the tool or server")
    command(actions, "explain", why, explain, *common, name, epilog=_EXPLAIN_EXAMPLES)


# --- list


def list_tools(arguments: argparse.Namespace) -> int:
    """Print the tools a session may use."""
    source = read_source(arguments)
    return run_async(in_session(source, lambda session: _list(session, source, arguments)))


async def _list(
    session: ToolSession, source: Plan | Elsewhere, arguments: argparse.Namespace
) -> int:
    tools = await _listed(session)
    entries = _entries(session, tools)
    dropped = session.effective.dropped if isinstance(session, Session) else ()
    warnings = [*source.warnings, *tools.warnings, *map(str, dropped)]
    rows = [_tool_row(entry) for entry in entries]
    plain = {"revision": tools.revision, "tools": rows, "warnings": warnings}
    show(arguments, plain, _table(entries), warnings=warnings)
    if not (arguments.json or entries or tools.warnings):
        print("\n".join(why_none(session.explanations(), arguments)), file=sys.stderr)
    return 0


async def _listed(session: ToolSession) -> ToolSet:
    servers = ", ".join(status.server_id for status in session.statuses())
    async with StatusLine().waiting(f"listing {servers or 'the tools'}"):
        return await session.tools()


class Entry(Struct, frozen=True):
    """One tool of a list; a process elsewhere does not say effect and approval of each."""

    tool: ToolDescriptor
    effect: str | None = None
    approval: str | None = None


def _entries(session: ToolSession, tools: ToolSet) -> list[Entry]:
    if not isinstance(session, Session):
        return [Entry(tool) for tool in tools]
    return [
        Entry(grant.tool, "read" if grant.read else "write", _approval(grant))
        for grant in _grants(session, tools)
    ]


def _grants(session: Session, tools: ToolSet) -> list[Grant]:
    """Return what policy says of each listed tool; it is asked once more, and is pure."""
    catalogue: dict[str, list[ToolDescriptor]] = {}
    for tool in tools:
        catalogue.setdefault(tool.server_id, []).append(tool)
    return list(compile_access(session.effective, catalogue).grants.values())


def _tool_row(entry: Entry) -> dict[str, object]:
    return {
        "name": entry.tool.model_name,
        "server": entry.tool.server_id,
        "tool": entry.tool.name,
        "effect": entry.effect,
        "approval": entry.approval,
        "description": entry.tool.description,
        "input_schema": entry.tool.input_schema,
    }


def _approval(grant: Grant) -> str:
    fixed = grant.approval.fixed
    if fixed is None:
        return "by arguments"
    return {"allow": "none", "require": "required", "deny": "denied"}[fixed.action]


def _table(entries: list[Entry]) -> str:
    decided = any(entry.effect is not None for entry in entries)
    header = ("name", "server", *(("effect", "approval") if decided else ()))
    rows = [[*_cells(entry), shown(entry.tool.description)] for entry in entries]
    return render_table((*header, "description"), rows, none="no tools", cut_last=True)


def _cells(entry: Entry) -> list[str]:
    cells = [shown(entry.tool.model_name), entry.tool.server_id]
    if entry.effect is None or entry.approval is None:
        return cells
    effect = paint(entry.effect, "green" if entry.effect == "read" else "yellow")
    approval = entry.approval if entry.approval == "none" else paint(entry.approval, "yellow")
    return [*cells, effect, approval]


# --- call


def call(arguments: argparse.Namespace) -> int:
    """Call one tool and print what it says."""
    given, source, line = _given(arguments), read_source(arguments), StatusLine()

    async def work(session: ToolSession) -> int:
        async with line.waiting(f"calling {arguments.name}"):
            outcome = await session.call(
                arguments.name,
                given,
                limits=CallLimits(
                    timeout=arguments.timeout, max_output_bytes=arguments.max_output_bytes
                ),
                on_progress=line.progress if line.visible else None,
                approval="wait" if isinstance(source, Plan) else asking(arguments, line),
            )
            hint = await _hint(session, outcome, arguments) or await _way_out(source, outcome.error)
        _print_outcome(outcome, source.warnings, as_json=arguments.json)
        if hint:
            print(hint, file=sys.stderr)
        return _exit_code(outcome)

    return run_async(in_session(source, work, approver_of(arguments, line)))


def _given(arguments: argparse.Namespace) -> dict[str, JsonValue]:
    """Return the call's arguments from ARGS and ``--arg``; the latter count where both speak."""
    try:
        given = _object(arguments.arguments)
    except (OSError, ValueError) as error:
        arguments.usage(f"ARGS: {_not_json(arguments.arguments, error)}")
        raise
    pairs: list[str] = arguments.arg
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            arguments.usage(f"--arg {pair}: must be KEY=VALUE")
        given[key] = value_of(value)
    return given


def _not_json(text: str, error: Exception) -> str:
    """Say why ARGS cannot be read; who writes KEY=VALUE means ``--arg``."""
    key, equals, _ = text.partition("=")
    if equals and key.isidentifier():
        return f"must be a JSON object; did you mean --arg {shlex.quote(text)}?"
    return str(error)


def _object(text: str | None) -> dict[str, JsonValue]:
    if text is None:
        return {}
    if text == "-":
        raw = sys.stdin.buffer.read()
    else:
        raw = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
    value = loads(raw)
    if not is_object(value):
        raise StrictJsonError("must be a JSON object, @FILE or -")
    return dict(value)


def _print_outcome(outcome: Outcome, warnings: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        plain = msgspec.to_builtins(body_of(outcome))
        print_json({**plain, "warnings": outcome.warnings})
        warn(warnings)
        return
    if not isinstance(outcome, Failed):
        print(render_safe(_said(outcome)), flush=True)
    error = shown_error(outcome)
    if error is not None:
        message = f"{error.code}: {render_safe(error.message)}"
        colour = "yellow" if outcome.ok else "red"
        print(paint(message, colour, sys.stderr), file=sys.stderr)
    warn([*warnings, *outcome.warnings])


def _said(outcome: Success) -> str:
    """Return what a tool said, with a note in the place of each picture."""
    if any(media_of(block) is not None for block in outcome.content):
        return readable(outcome.content)
    return outcome.text or tool_message(outcome)


def _exit_code(outcome: Outcome) -> int:
    if outcome.error is None:
        return 0
    if waiting_of(outcome) is not None:
        return EXIT_WAITING
    return EXIT_REFUSED if outcome.error.code in _REFUSALS else EXIT_FAILED


async def _hint(session: ToolSession, outcome: Outcome, arguments: argparse.Namespace) -> str:
    """Return what to do next, where that can be told."""
    error = shown_error(outcome)
    if error is None:
        return ""
    waiting = waiting_of(outcome)
    if waiting is not None:
        return how_to_go_on(waiting, session, arguments)
    details = error.details or {}
    if "did_you_mean" in details:  # the message names those that are near
        near = bool(details["did_you_mean"])
        return "" if near else _did_you_mean(arguments.name, await _known(session))
    looking = "doctor" if isinstance(session, Session) else "servers status"
    return {
        "mcp_approval_required": _how_to_approve(session),
        "mcp_invalid_arguments": f"its input_schema: {typed('tools list --json', arguments)}",
        "mcp_unavailable": f"what is wrong with a server: {typed(looking, arguments)}",
        "mcp_output_too_large": "the limits: --max-output-bytes, budgets.max_tool_output_bytes",
    }.get(error.code, "")


async def _way_out(source: Plan | Elsewhere, error: Failure | None) -> str:
    """Return what would lift a denial, where that can be told."""
    decision = None if error is None else (error.details or {}).get("decision")
    return await way_out(source, decision) if is_object(decision) else ""


def _how_to_approve(session: ToolSession) -> str:
    if isinstance(session, Session):
        return "approve it with --yes, or run it in a terminal, which asks you"
    return "this process keeps no approvals; call it from here: --registry-dir DIR --yes"


async def _known(session: ToolSession) -> ToolSet:
    """Return the tools that are known: an answer about one server does not wait for the others."""
    known = session.known_tools() if isinstance(session, Session) else None
    return known or await session.tools()


def _did_you_mean(name: str, tools: ToolSet) -> str:
    """Return the names that are near, by the tool's own name as well as by the whole."""
    if not tools:
        return f"there are no tools in this session: see {typed('tools list')}"
    near = nearest(name, tools)
    if not near:
        return f"see {typed('tools list')} for the names"
    return f"did you mean {', '.join(map(shown, near))}?"


# --- explain


def explain(arguments: argparse.Namespace) -> int:
    """Print why a tool or server may be used, or not."""
    source = read_source(arguments)
    return run_async(in_session(source, lambda session: _explain(session, source, arguments)))


async def _explain(
    session: ToolSession, source: Plan | Elsewhere, arguments: argparse.Namespace
) -> int:
    tools = await _listed(session)
    found = await session.explanation(arguments.name)
    show(arguments, found, render_safe(str(found)))
    others = {one.server for one in session.explanations()} - {found.server}
    elsewhere = tuple(f"{server}: " for server in others) if found.server else ()
    about = [said for said in tools.warnings if not said.startswith(elsewhere)]
    warn([*source.warnings, *about])
    if found.reason in _UNKNOWN:
        print(_did_you_mean(arguments.name, tools), file=sys.stderr)
    elif not found.allowed and (hint := await way_out(source, found.plain())):
        print(hint, file=sys.stderr)
    return explain_code(found.decision)


def explain_code(decision: Decision) -> int:
    """Return the exit code that a call would have: refused, or failed for another reason."""
    if decision.allowed:
        return 0
    failed = decision.reason in _UNKNOWN or decision.layer == "node"
    return EXIT_FAILED if failed else EXIT_REFUSED
