"""A second, naive reading of the policy rules, for `compose` to agree with.

Written from DESIGN.md, section 4, and seed 002, not from the code under test, over plain dicts
(the JSON form of the records) and with a matcher that simply tries everything. It says of each
server and tool every objection that any layer has; what nobody objects to is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Plain = dict[str, Any]
Objections = set[tuple[str, str]]


@dataclass(frozen=True)
class Case:
    """Everything `compose` is given, as plain values."""

    servers: dict[str, Plain]
    profiles: dict[str, Plain]
    platform: Plain
    task: Plain | None
    session: Plain
    environment: str | None
    users: dict[str, Plain] = field(default_factory=dict[str, Plain])
    person: str | None = None
    acting: bool = False


def glob_matches(glob: str, text: str) -> bool:
    """Match by trying everything."""
    if not glob:
        return not text
    if glob[0] == "*":
        return glob_matches(glob[1:], text) or (bool(text) and glob_matches(glob, text[1:]))
    return bool(text) and glob[0] in ("?", text[0]) and glob_matches(glob[1:], text[1:])


def listed(patterns: list[str], server: str, tool: str) -> bool:
    for pattern in patterns:
        if "/" in pattern:
            wanted, glob = pattern.split("/", 1)
            if wanted == server and glob_matches(glob, tool):
                return True
        elif glob_matches(pattern, tool):
            return True
    return False


@dataclass
class TaskLayer:
    """What the task layer comes to: None for either bound when there is no task."""

    sources: list[Plain]
    default: list[str] | None
    allowed: set[str] | None
    profile_missing: bool


def task_layer(case: Case) -> TaskLayer:
    if case.task is None:
        return TaskLayer([], None, None, profile_missing=False)
    sources = [case.task]
    name = case.task.get("profile")
    if name is not None:
        profile = case.profiles.get(name)
        if profile is None:
            return TaskLayer(sources, [], set(), profile_missing=True)
        sources.append(profile)
        sources.append(profile.get("environments", {}).get(case.environment, {}))
        sources.append(case.task.get("profile_overrides") or {})
    default, allowed = bounds(case, sources)
    return TaskLayer(sources, default, allowed, profile_missing=False)


def bounds(case: Case, sources: list[Plain]) -> tuple[list[str], set[str]]:
    default: list[str] | None = None
    allowed: set[str] | None = None
    for source in sources:
        own_default, own_allowed = source_bounds(case, source)
        if own_default is not None:
            default = [s for s in (own_default if default is None else default) if s in own_default]
        if own_allowed is not None:
            allowed = set(own_allowed) if allowed is None else allowed & set(own_allowed)
    allowed = allowed or set()
    return [s for s in default or [] if s in allowed], allowed


def source_bounds(case: Case, source: Plain) -> tuple[list[str] | None, list[str] | None]:
    default = source.get("default_server_ids")
    allowed = source.get("allowed_server_ids")
    tags = source.get("server_tags")
    if tags is not None:
        tagged = [s for s, r in case.servers.items() if set(tags) & set(r.get("tags", []))]
        if default is None and allowed is None:
            return tagged, tagged
        default = None if default is None else [s for s in default if s in tagged]
        allowed = None if allowed is None else [s for s in allowed if s in tagged]
    return default, default if allowed is None else allowed


def refusal(case: Case) -> str | None:
    """Say why the session is refused, if it is."""
    turned_away = refusal_of_person(case)
    if turned_away is not None or case.task is None:
        return turned_away
    if case.session.get("enabled") is True and not case.task.get("enabled", False):
        return "task_disabled"
    allowed = task_layer(case).allowed or set()
    if any(server not in allowed for server in case.session.get("server_ids") or []):
        return "not_allowed"
    return None


def refusal_of_person(case: Case) -> str | None:
    task = case.task or {}
    if case.person is not None and case.person not in case.users:
        if not case.acting or task.get("users") != "open":
            return "unknown_user"
    elif case.person is not None and not case.users[case.person].get("enabled", True):
        return "user_disabled"
    groups = case.users.get(case.person or "", {}).get("groups", [])
    wanted = task.get("allowed_groups")
    if wanted is not None and not any(group in wanted for group in groups):
        return "group_not_allowed"
    return None


def person_sources(case: Case) -> list[Plain]:
    record = case.users.get(case.person or "", {})
    return [record, record.get("own") or {}]


def requested(case: Case) -> list[str]:
    asked = case.session.get("server_ids")
    chosen = (task_layer(case).default or []) if asked is None else asked
    return list(dict.fromkeys(chosen))


def server_objections(case: Case, server: str) -> Objections:
    found = platform_objections(case, server)
    layer = task_layer(case)
    if case.task is not None:
        if not case.task.get("enabled", False):
            found.add(("task", "task_disabled"))
        if layer.profile_missing:
            found.add(("task", "unknown_profile"))
        if server not in (layer.allowed or set()):
            found.add(("task", "not_allowed"))
    for source in person_sources(case):
        enabled = source.get("enabled_server_ids")
        if enabled is not None and server not in enabled:
            found.add(("user", "user_not_enabled"))
    if case.session.get("enabled") is False:
        found.add(("session", "session_disabled"))
    if server not in requested(case):
        by_task = case.task is not None and case.session.get("server_ids") is None
        found.add(("task", "not_default") if by_task else ("session", "not_requested"))
    return found


def platform_objections(case: Case, server: str) -> Objections:
    record = case.servers.get(server)
    if record is None:
        return {("platform", "unknown_server")}
    found: Objections = set()
    if not record.get("enabled", True):
        found.add(("platform", "server_disabled"))
    if not record.get("allowed_tools"):
        found.add(("platform", "deny_all"))
    return found


def effective_servers(case: Case) -> list[str]:
    return [server for server in requested(case) if not server_objections(case, server)]


def tool_objections(case: Case, server: str, tool: str) -> Objections:
    found = server_objections(case, server)
    record = case.servers.get(server, {})
    if not listed(record.get("allowed_tools", []), server, tool):
        found.add(("platform", "not_in_allowed_tools"))
    if listed(case.platform.get("tool_denylist", []), server, tool):
        found.add(("platform", "platform_denied"))
    reads = record.get("effects", {}).get("read", [])
    for source in task_layer(case).sources:
        found |= filter_objections("task", source, reads, (server, tool))
    for source in person_sources(case):
        found |= filter_objections("user", source, reads, (server, tool))
    return found | filter_objections("session", case.session, reads, (server, tool))


def offered(case: Case, catalogue: dict[str, list[str]]) -> set[tuple[str, str]]:
    """Return what of a catalogue is offered: all that is allowed, up to the task's `max_tools`.

    Of more than that, first come those that stand first in the allowlists (the task's sources, then
    the person's and the session's), then those that read, then by the name a model sees.
    """
    allowed = [
        (server, tool)
        for server, tools in catalogue.items()
        for tool in tools
        if not tool_objections(case, server, tool)
    ]
    if case.task is None:
        return set(allowed)
    sources = (*task_layer(case).sources, *person_sources(case), case.session)
    lists = [source.get("tool_allowlist") for source in sources]

    def rank(target: tuple[str, str]) -> tuple[Any, ...]:
        places = [place_in(patterns, *target) for patterns in lists if patterns is not None]
        reads = case.servers[target[0]].get("effects", {}).get("read", [])
        return (places, not listed(reads, *target), f"mcp__{target[0]}__{target[1]}")

    return set(sorted(allowed, key=rank)[: case.task.get("max_tools", 128)])


def place_in(patterns: list[str], server: str, tool: str) -> int:
    return next(n for n, pattern in enumerate(patterns) if listed([pattern], server, tool))


def filter_objections(
    layer: str, source: Plain, reads: list[str], target: tuple[str, str]
) -> Objections:
    found: Objections = set()
    allowlist = source.get("tool_allowlist")
    if allowlist is not None and not listed(allowlist, *target):
        found.add((layer, f"{layer}_not_allowlisted"))
    if listed(source.get("tool_denylist", []), *target):
        found.add((layer, f"{layer}_denied"))
    if source.get("read_only", False) and not listed(reads, *target):
        found.add((layer, f"{layer}_read_only"))
    return found
