"""What a person needs to understand access, and to review a change of it.

``compose.py`` and ``access.py`` hold the decisions; this only finds and words them.
"""

from __future__ import annotations

from msgspec import convert
from msgspec.structs import asdict, replace

from bascule.model.access_diff import AccessDiff, ToolChange
from bascule.model.decision import Decision, allow, deny
from bascule.model.explanation import AboutServer, Explanation, Objection, explained
from bascule.model.json import is_array
from bascule.model.name import model_name
from bascule.policy.access import Access, Catalogue, compile_access, guess_target
from bascule.policy.compose import Effective
from bascule.policy.filters import filters_of
from bascule.policy.isolation import isolation_notes


def with_failure(found: Explanation, failure: Decision) -> Explanation:
    """Add that the server cannot be asked; it decides where nothing else stands in the way."""
    objection = Objection.of(failure)
    if not found.allowed and found.reason != "unknown_tool":
        return replace(found, objections=(*found.objections, objection))
    return replace(found, allowed=False, objections=(objection,), **asdict(objection))


def explain(subject: Effective | Access, name: str) -> Explanation:
    """Explain a tool (any spelling, or ``server/tool``) or a whole server (its id).

    With an ``Access`` the answer knows which tools really exist; with an ``Effective`` it says
    what policy thinks of the name.
    """
    effective = subject.effective if isinstance(subject, Access) else subject
    if name in effective.registry.servers or _names_only_a_server(effective, name):
        return _explain_server(effective, name)
    decision = _decision(subject, effective, name)
    return explained(
        name,
        decision,
        effective.revision,
        notes=_approval_note(subject, name),
        blocked_by=_blocked_by(effective, decision),
        filters=filters_of(effective, decision.server),
    )


def _decision(subject: Effective | Access, effective: Effective, name: str) -> Decision:
    if isinstance(subject, Access):
        return subject.decide(name)
    server, tool = guess_target(effective, name)
    if not server:
        return deny(server, tool, "platform", "unknown_tool", "tools/list")
    return effective.decide(server, tool)


def _blocked_by(effective: Effective, decision: Decision) -> tuple[Decision, ...]:
    """Return every objection, the one that decided first."""
    if decision.allowed:
        return ()
    if not decision.server or decision.names_nothing:
        return (decision,)
    found = effective.objections(decision.server, decision.tool)
    return (decision, *(one for one in found if one != decision))


def _names_only_a_server(effective: Effective, name: str) -> bool:
    return any(decision.server == name for decision in effective.decisions)


def _explain_server(effective: Effective, server: str) -> Explanation:
    verdict = effective.decide(server, "")
    refused = deny(server, None, verdict.layer, verdict.reason, verdict.rule)
    decision = allow(server, None) if server in effective.servers else refused
    filters = filters_of(effective, server)
    found = explained(
        server,
        decision,
        effective.revision,
        notes=() if filters is None else _isolation(effective, server),
        blocked_by=_blocked_by(effective, decision),
        filters=filters,
    )
    return found if filters is None else replace(found, about=_about(effective, server))


def _isolation(effective: Effective, server: str) -> tuple[str, ...]:
    registry = effective.registry
    return isolation_notes(registry.servers[server], registry.platform)


def _about(effective: Effective, server: str) -> AboutServer:
    return convert(effective.registry.servers[server], AboutServer, from_attributes=True)


def _approval_note(subject: Effective | Access, name: str) -> tuple[str, ...]:
    grant = subject.resolve(name) if isinstance(subject, Access) else None
    if grant is None:
        return ()
    kind = "read" if grant.read else "write"
    fixed = grant.approval.fixed
    approval = str(fixed) if fixed is not None else "approval depends on the arguments"
    return (f"{kind} tool; {approval}",)


def diff(before: Effective, after: Effective, catalogue: Catalogue | None = None) -> AccessDiff:
    """Compare two effective policies: by pattern, and by tool where the tools are known.

    Of servers without a catalogue the tools compared are those that patterns name literally.
    """
    known = catalogue or {}
    had, has = frozenset(before.servers), frozenset(after.servers)
    gained = tuple(s for s in after.servers if s not in had)
    lost = tuple(_why_lost(after, s) for s in before.servers if s not in has)
    tools = [*_diff_tools(before, after, known), *_diff_literals(before, after, known)]
    tools.sort(key=lambda change: change.name)
    return AccessDiff(gained, lost, tuple(tools), _diff_filters(before, after))


def _why_lost(after: Effective, server: str) -> Decision:
    verdict = after.decide(server, "")
    return deny(server, None, verdict.layer, verdict.reason, verdict.rule)


def _diff_tools(before: Effective, after: Effective, catalogue: Catalogue) -> list[ToolChange]:
    old, new = compile_access(before, catalogue), compile_access(after, catalogue)
    return [
        ToolChange(tool.model_name, old.decided(tool), new.decided(tool))
        for tools in catalogue.values()
        for tool in tools
        if (tool.model_name in old.grants) != (tool.model_name in new.grants)
    ]


def _diff_literals(before: Effective, after: Effective, catalogue: Catalogue) -> list[ToolChange]:
    changes: list[ToolChange] = []
    for server, tool in sorted({*literal_tools(before), *literal_tools(after)}):
        if server in catalogue:
            continue
        old, new = before.decide(server, tool), after.decide(server, tool)
        if old.allowed != new.allowed:
            record = after.registry.servers.get(server) or before.registry.servers[server]
            changes.append(ToolChange(model_name(record.tool_namespace, tool), old, new))
    return changes


def literal_tools(effective: Effective) -> list[tuple[str, str]]:
    """Return the tools that effective servers' ``allowed_tools`` name without a wildcard."""
    return [
        (server, pattern.rpartition("/")[2])
        for server in effective.servers
        for pattern in effective.registry.servers[server].allowed_tools
        if not set(pattern) & {"*", "?"}
    ]


def _diff_filters(before: Effective, after: Effective) -> tuple[str, ...]:
    has = frozenset(after.servers)
    kept = [server for server in before.servers if server in has]
    old, new = _filters(before, kept), _filters(after, kept)
    return tuple(
        f"{key}: {old.get(key, 'none')} -> {new.get(key, 'none')}"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    )


def _filters(effective: Effective, kept: list[str]) -> dict[str, str]:
    """Name every pattern list that shapes the outcome, as text; an allowlist may be empty."""
    allow: dict[str, tuple[str, ...] | None] = {}
    denied = effective.registry.platform.tool_denylist
    narrow: dict[str, object] = {"platform tool_denylist": denied}
    for server in kept:
        allow[f"{server} allowed_tools"] = effective.registry.servers[server].allowed_tools
    for source in effective.filters:
        name = source.source
        allow[f"{name} tool_allowlist"] = None if source.allow is None else source.allow.texts
        narrow[f"{name} tool_denylist"] = source.deny.texts
        narrow[f"{name} read_only"] = source.read_only
    narrow["task max_tools"] = effective.bounds.max_tools
    given = {key: value for key, value in allow.items() if value is not None}
    return {
        **{key: _listed(value) for key, value in given.items()},
        **{key: _listed(value) for key, value in narrow.items() if value},
    }


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) or "nothing" if is_array(value) else str(value)
