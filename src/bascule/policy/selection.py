"""What a task, a person and a session select, from any number of sources that meet by intersection.

A task has its own keys, its profile, the profile's entry for the environment and the overrides; a
person has what an administrator set and their own choice; a session has the requests it was opened
with. No source ever adds to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bascule.model.decision import Layer
from bascule.model.pattern import PatternSet
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import Selection, TaskPolicy
from bascule.model.user import UserFilters, UserRecord


class ToolFilter(Struct, frozen=True):
    """One source's filters, with the words that name it in a reason."""

    layer: Layer
    source: str
    allow: PatternSet | None
    deny: PatternSet
    read_only: bool


class ServerChoice(Struct, frozen=True):
    """The servers that one source selects; None where it says nothing."""

    source: str
    default: tuple[str, ...] | None
    allowed: tuple[str, ...] | None


class Bounds(Struct, frozen=True):
    """The task layer in full: ordered defaults, the ceiling, and every filter.

    ``default`` and ``allowed`` are None when nothing bounds them (no task at all); ``outside`` are
    defaults that the ceiling leaves out. ``choices`` are what they were made of.
    """

    enabled: bool
    default: tuple[str, ...] | None
    allowed: frozenset[str] | None
    named: tuple[str, ...]
    filters: tuple[ToolFilter, ...]
    warnings: tuple[str, ...] = ()
    missing_profile: str | None = None
    outside: tuple[str, ...] = ()
    max_tools: int | None = None
    choices: tuple[ServerChoice, ...] = ()


UNBOUNDED = Bounds(enabled=True, default=None, allowed=None, named=(), filters=())


class UserBounds(Struct, frozen=True):
    """The person's part in full: the servers that each source enables, and every filter.

    ``groups`` is None where the person has no record, or where there is no person.
    """

    groups: tuple[str, ...] | None
    servers: tuple[tuple[str, frozenset[str]], ...]
    filters: tuple[ToolFilter, ...]


NO_RECORD = UserBounds(groups=None, servers=(), filters=())


class SessionLayer(Struct, frozen=True):
    """One request of a session, with the words that name it in a reason."""

    source: str
    enabled: bool
    servers: frozenset[str] | None

    def rule(self, key: str) -> str:
        """Name one of its keys."""
        return f"mcp.{key}" if self.source == "session" else f"mcp.{key} of {self.source}"


class SessionBounds(Struct, frozen=True):
    """The session's part in full; ``servers`` is None when no request names any."""

    layers: tuple[SessionLayer, ...]
    enabled: bool
    servers: tuple[str, ...] | None
    filters: tuple[ToolFilter, ...]


def user_bounds(record: UserRecord | None) -> UserBounds:
    """Return what a person's record leaves; without one there is nothing that it could narrow."""
    if record is None:
        return NO_RECORD
    sources: list[tuple[str, UserFilters]] = [(f"user {record.user_id}", record)]
    if record.own is not None:
        sources.append((f"user {record.user_id} own", record.own))
    return UserBounds(
        record.groups,
        tuple(
            (source, frozenset(one.enabled_server_ids))
            for source, one in sources
            if one.enabled_server_ids is not None
        ),
        tuple(_filter("user", *pair) for pair in sources),
    )


def session_bounds(requests: Sequence[SessionRequest]) -> SessionBounds:
    """Return what all requests of a session leave together."""
    places = range(1, len(requests) + 1)
    names = ["session"] if len(requests) == 1 else [f"session layer {place}" for place in places]
    named = [asked.server_ids for asked in requests if asked.server_ids is not None]
    layers = tuple(map(_layer, names, requests))
    return SessionBounds(
        layers,
        all(layer.enabled for layer in layers),
        _intersection(named) if named else None,
        tuple(_filter("session", *pair) for pair in zip(names, requests, strict=True)),
    )


def _layer(source: str, asked: SessionRequest) -> SessionLayer:
    servers = None if asked.server_ids is None else frozenset(asked.server_ids)
    return SessionLayer(source, asked.enabled is not False, servers)


def task_bounds(registry: Snapshot, policy: TaskPolicy, environment: str | None) -> Bounds:
    """Return what the task layer allows."""
    sources, warnings, missing = _sources(registry, policy, environment)
    choices = tuple(ServerChoice(name, *_servers_of(registry, one)) for name, one in sources)
    defaults = [choice.default for choice in choices if choice.default is not None]
    ceilings = [choice.allowed for choice in choices if choice.allowed is not None]
    default = _intersection(defaults) if not missing else ()
    allowed = frozenset(_intersection(ceilings)) if not missing else frozenset[str]()
    bounds = Bounds(
        enabled=policy.enabled,
        default=_keep(default, allowed.__contains__),
        allowed=allowed,
        named=_unique([name for group in (*defaults, *ceilings) for name in group]),
        filters=tuple(_filter("task", source, selection) for source, selection in sources),
        missing_profile=missing,
        outside=tuple(server for server in default if server not in allowed),
        max_tools=policy.max_tools,
        choices=choices,
    )
    return replace(bounds, warnings=(*warnings, *default_warnings(policy, bounds)))


def _sources(
    registry: Snapshot, policy: TaskPolicy, environment: str | None
) -> tuple[list[tuple[str, Selection]], list[str], str | None]:
    """Return every source of the task layer by name, warnings, and a profile that is missing."""
    sources: list[tuple[str, Selection]] = [("task", policy)]
    if policy.profile is None:
        return sources, [], None
    profile = registry.profiles.get(policy.profile)
    if profile is None:
        return sources, [f"profile {policy.profile!r} does not exist"], policy.profile
    sources.append((f"profile {profile.name}", profile))
    warnings: list[str] = []
    if environment is not None and environment in profile.environments:
        narrowed = profile.environments[environment]
        sources.append((f"profile {profile.name} in {environment}", narrowed))
    elif profile.environments:
        where = f"environment {environment!r}" if environment else "no environment"
        warnings.append(f"profile {profile.name!r} says nothing for {where}")
    if policy.profile_overrides is not None:
        sources.append(("task profile_overrides", policy.profile_overrides))
    return sources, warnings, None


def _servers_of(
    registry: Snapshot, selection: Selection
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return one source's defaults and ceiling; None where it says nothing.

    Tags select when no ids are given, and narrow the ids when they are. Without a ceiling the
    defaults are the ceiling (least privilege).
    """
    default, allowed = selection.default_server_ids, selection.allowed_server_ids
    if selection.server_tags is not None:
        tagged = _tagged(registry, selection.server_tags)
        if default is None and allowed is None:
            return tagged, tagged
        default = None if default is None else _keep(default, tagged.__contains__)
        allowed = None if allowed is None else _keep(allowed, tagged.__contains__)
    return default, default if allowed is None else allowed


def _tagged(registry: Snapshot, tags: tuple[str, ...]) -> tuple[str, ...]:
    wanted = frozenset(tags)
    return tuple(sorted(s for s, r in registry.servers.items() if wanted & frozenset(r.tags)))


def _filter(
    layer: Layer, source: str, selection: Selection | SessionRequest | UserFilters
) -> ToolFilter:
    allow = selection.tool_allowlist
    return ToolFilter(
        layer,
        source,
        None if allow is None else PatternSet(allow),
        PatternSet(selection.tool_denylist),
        selection.read_only,
    )


def default_warnings(policy: TaskPolicy, bounds: Bounds) -> list[str]:
    """Say where a task's defaults come to less than they seem to."""
    outside = bounds.outside
    warnings = [f"default server {server!r} is outside the allowed servers" for server in outside]
    if policy.enabled and not (bounds.default or outside):
        warnings.append("MCP is enabled but no default server is selected")
    return warnings


def _intersection(groups: list[tuple[str, ...]]) -> tuple[str, ...]:
    if not groups:
        return ()
    first, *rest = groups
    return tuple(s for s in _unique(first) if all(s in group for group in rest))


def _keep(items: tuple[str, ...], wanted: Callable[[str], bool]) -> tuple[str, ...]:
    return tuple(item for item in items if wanted(item))


def _unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))
