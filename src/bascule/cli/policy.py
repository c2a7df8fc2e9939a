"""``bascule policy explain``: what a task's session may use, and why not the rest."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from bascule.cli.running import (
    add_registry_option,
    file_warnings,
    print_json,
    read_session,
    read_task,
    scan_records,
    warn,
)
from bascule.cli.table import paint, render_table
from bascule.model.decision import MEANING, Decision
from bascule.model.name import model_name
from bascule.policy.access import guess_target
from bascule.policy.compose import Effective, compose

_EXAMPLES = """\
examples:
  bascule policy explain --registry-dir mcp.d --task task.json
  bascule policy explain --registry-dir mcp.d --task task.json --session session.json --json
  bascule policy explain --registry-dir mcp.d --task task.json --tool gitlab/delete_project

The task file is a task record or the map of its mcp.* keys; the session file is a map of
session parameters (mcp.server_ids, mcp.tool_allowlist, ...). Both may be JSON or TOML.
Exit code 10: the session asks for more than the task allows.
"""


def fill(group: argparse.ArgumentParser) -> None:
    """Add the commands of ``policy``."""
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = actions.add_parser(
        "explain",
        help="what a task's session may use, and why not the rest",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_registry_option(parser)
    parser.add_argument("--task", required=True, metavar="FILE", help="the task")
    parser.add_argument("--session", metavar="FILE", help="the session's parameters")
    parser.add_argument("--tool", action="append", default=[], metavar="NAME", help="also this one")
    parser.add_argument("--environment", metavar="NAME", help="the profiles' environment")
    parser.add_argument("--strict", action="store_true", help="refuse what is only a warning")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=explain)


def explain(arguments: argparse.Namespace) -> int:
    """Compose the policy and print it; exit 0 when there is an answer."""
    scan = scan_records(arguments.registry_dir, strict=arguments.strict)
    if arguments.strict:
        scan.refuse_broken()
    task, task_warnings = read_task(arguments.task, strict=arguments.strict)
    session, session_warnings = read_session(arguments.session, strict=arguments.strict)
    effective = compose(scan.snapshot(), task, session, environment=arguments.environment)
    decisions = [effective.decide(server, tool) for server, tool in _asked(effective, arguments)]
    warnings = [*effective.warnings, *task_warnings, *session_warnings, *file_warnings(scan)]
    if arguments.json:
        print_json(_report(effective, decisions, warnings))
    else:
        _print_report(effective, decisions, warnings)
    return 0


def _asked(effective: Effective, arguments: argparse.Namespace) -> Iterable[tuple[str, str]]:
    """Return the tools to speak of: literal entries of ``allowed_tools`` and those named."""
    pairs = [
        (server, pattern.rpartition("/")[2])
        for server, record in effective.registry.servers.items()
        for pattern in record.allowed_tools
        if not set(pattern) & {"*", "?"}
    ]
    named: list[str] = arguments.tool
    for name in named:
        pairs += _targets(effective, name)
    return dict.fromkeys(pairs)


def _targets(effective: Effective, name: str) -> list[tuple[str, str]]:
    """Read a name in any spelling; a bare tool name means that tool of every server in play."""
    server, tool = guess_target(effective, name)
    if tool:
        return [(server, tool)]
    return [(server, name) for server in effective.servers or effective.registry.servers]


def _report(
    effective: Effective, decisions: Iterable[Decision], warnings: list[str]
) -> Mapping[str, Any]:
    return {
        "revision": effective.revision,
        "effective_servers": list(effective.servers),
        "tools": [_tool_row(effective, decision) for decision in decisions],
        "dropped_servers": [
            {"server": d.server, "layer": d.layer, "reason": d.reason, "rule": d.rule}
            for d in effective.dropped
        ],
        "warnings": warnings,
    }


def _tool_row(effective: Effective, decision: Decision) -> Mapping[str, Any]:
    return {
        "server": decision.server,
        "tool": decision.tool,
        "name": _name(effective, decision),
        "allowed": decision.allowed,
        "layer": decision.layer,
        "reason": decision.reason,
        "rule": decision.rule,
    }


def _name(effective: Effective, decision: Decision) -> str:
    record = effective.registry.servers.get(decision.server)
    namespace = record.tool_namespace if record is not None else f"mcp.{decision.server}"
    return model_name(namespace, decision.tool or "")


def _print_report(effective: Effective, decisions: Iterable[Decision], warnings: list[str]) -> None:
    print(f"effective servers: {', '.join(effective.servers) or 'none'}")
    rows = [_verdict_row(d, f"{d.server}/{d.tool}") for d in decisions]
    rows += [_verdict_row(d, f"{d.server} (server)") for d in effective.dropped]
    if rows:
        print()
        print(render_table(("what", "verdict", "layer", "reason", "rule"), rows))
    warn(warnings)


def _verdict_row(decision: Decision, what: str) -> list[str]:
    verdict = paint("allowed", "green") if decision.allowed else paint("denied", "red")
    reason = f"{decision.reason}: {MEANING[decision.reason]}"
    return [what, verdict, decision.layer, reason, decision.rule]
