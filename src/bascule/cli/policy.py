"""``bascule policy explain``: show what a task's session may use, and why not the rest."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from bascule.cli.command import (
    RECORDS,
    SESSION,
    file_warnings,
    read_session,
    read_task,
    scan_records,
    show,
)
from bascule.cli.parser import (
    ENVIRONMENT,
    EXIT_REFUSED,
    JSON,
    STRICT,
    Parser,
    actions_of,
    command,
    many,
    option,
)
from bascule.cli.table import render_table, verdict
from bascule.model.decision import MEANING, Decision, deny
from bascule.model.explanation import Filters, Objection
from bascule.model.name import model_name
from bascule.policy.access import guess_target
from bascule.policy.compose import Effective, compose
from bascule.policy.filters import filters_of

_EXAMPLES = """\
examples:
  bascule policy explain --registry-dir mcp.d --task task.json
  bascule policy explain --registry-dir mcp.d --task task.json --session session.json --json
  bascule policy explain --registry-dir mcp.d --task task.json --tool gitlab/delete_project
  bascule policy explain --registry-dir mcp.d --task task.json --user alice

The task file is a task record or the map of its mcp.* keys; the session file is a map of
session parameters (mcp.server_ids, mcp.tool_allowlist, ...). Both may be JSON or TOML.
A tool may be written in any form: gitlab/delete_project, gitlab.delete_project, mcp__gitlab__….
Exit code 10: the session asks for more than the task allows, the person is refused, or a --tool
is denied.
"""


def fill(group: Parser) -> None:
    """Add the commands of ``policy``."""
    actions = actions_of(group)
    summary = "show what a task's session may use, and why not the rest"
    task = option("--task", "FILE", "the task", required=True)
    tool = many("--tool", "NAME", "this tool too")
    user = option("--user", "ID", "for this person, of the users among the records")
    options = (RECORDS, task, SESSION, tool, user, ENVIRONMENT, STRICT, JSON)
    command(actions, "explain", summary, explain, *options, epilog=_EXAMPLES)


def explain(arguments: argparse.Namespace) -> int:
    """Compose the policy and print it; exit 10 when a tool that was named is denied."""
    scan = scan_records(arguments.registry_dir, strict=arguments.strict)
    if arguments.strict:
        scan.refuse_broken()
    task, task_warnings = read_task(arguments.task, strict=arguments.strict)
    session, session_warnings = read_session(arguments.session, strict=arguments.strict)
    effective = compose(
        scan.snapshot(),
        task,
        session,
        environment=arguments.environment,
        person=arguments.user,
    )
    named = {name: _targets(effective, name) for name in arguments.tool}
    meant = [pair for targets in named.values() for pair in targets]
    pairs = dict.fromkeys((*_literal(effective), *meant))
    decisions = [_decided(effective, server, tool) for server, tool in pairs]
    warnings = [*effective.warnings, *task_warnings, *session_warnings, *file_warnings(scan)]
    report = _report(effective, decisions, warnings)
    show(arguments, report, *_texts(effective, decisions), warnings=warnings)
    allowed = [
        any(_decided(effective, *pair).allowed for pair in targets) for targets in named.values()
    ]
    return 0 if all(allowed) else EXIT_REFUSED


def _decided(effective: Effective, server: str, tool: str) -> Decision:
    if server:
        return effective.decide(server, tool)
    return deny(server, tool, "platform", "unknown_tool", "tools/list")


def _literal(effective: Effective) -> list[tuple[str, str]]:
    """Return the tools that ``allowed_tools`` name without a wildcard."""
    return [
        (server, pattern.rpartition("/")[2])
        for server, record in effective.registry.servers.items()
        for pattern in record.allowed_tools
        if not set(pattern) & {"*", "?"}
    ]


def _targets(effective: Effective, name: str) -> list[tuple[str, str]]:
    """Read a name in any spelling; a bare tool name means that tool of every server in play."""
    server, tool = guess_target(effective, name)
    if server:
        return [(server, tool)]
    if "/" in name or name.startswith(("mcp.", "mcp__")):
        return [("", name)]  # it says a server, and there is none of that name
    return [(server, name) for server in effective.servers or effective.registry.servers]


def _report(
    effective: Effective, decisions: Iterable[Decision], warnings: list[str]
) -> dict[str, object]:
    return {
        "revision": effective.revision,
        "effective_servers": effective.servers,
        "tools": [_tool_row(effective, decision) for decision in decisions],
        "dropped_servers": [
            {"server": d.server, **_why(d, effective.objections(d.server))}
            for d in effective.dropped
        ],
        "filters": dict(_filters(effective)),
        "warnings": warnings,
    }


def _tool_row(effective: Effective, decision: Decision) -> dict[str, object]:
    return {
        "server": decision.server,
        "tool": decision.tool,
        "name": _name(effective, decision),
        "allowed": decision.allowed,
        **_why(decision, _objections(effective, decision)),
    }


def _why(decision: Decision, objections: Iterable[Decision]) -> dict[str, object]:
    blocked_by = [Objection.of(one) for one in objections]
    return {
        "layer": decision.layer,
        "reason": decision.reason,
        "rule": decision.rule,
        "blocked_by": blocked_by,
    }


def _objections(effective: Effective, decision: Decision) -> tuple[Decision, ...]:
    if decision.allowed or not decision.server:
        return () if decision.allowed else (decision,)
    return effective.objections(decision.server, decision.tool)


def _filters(effective: Effective) -> Iterator[tuple[str, Filters]]:
    """Yield the tool filters of the servers that the session may know of."""
    for server in effective.servers:
        found = filters_of(effective, server)
        if found is not None:
            yield server, found


def _name(effective: Effective, decision: Decision) -> str:
    record = effective.registry.servers.get(decision.server)
    namespace = record.tool_namespace if record is not None else f"mcp.{decision.server}"
    return model_name(namespace, decision.tool or "")


def _texts(effective: Effective, decisions: Iterable[Decision]) -> Iterator[str]:
    yield f"effective servers: {', '.join(effective.servers) or 'none'}"
    for server, found in _filters(effective):
        yield f"\ntools of {server}: {found.merged}"
        yield "\n".join(f"  {layer}" for layer in found.layers)
    rows = [row for d in decisions for row in _rows(d, _objections(effective, d))]
    rows += [row for d in effective.dropped for row in _rows(d, effective.objections(d.server))]
    if rows:
        yield ""
        yield render_table(("what", "verdict", "layer", "reason", "rule"), rows)


def _rows(decision: Decision, objections: Iterable[Decision]) -> list[list[str]]:
    """Return the lines of one verdict: the objection that decided, then the others."""
    tool = decision.tool
    what = f"{decision.server} (server)" if tool is None else f"{decision.server}/{tool}"
    first = [what.removeprefix("/"), verdict(decision.allowed), *_cells(decision)]
    return [first, *(["", "", *_cells(one)] for one in objections if one != decision)]


def _cells(decision: Decision) -> list[str]:
    return [decision.layer, f"{decision.reason}: {MEANING[decision.reason]}", decision.rule]
