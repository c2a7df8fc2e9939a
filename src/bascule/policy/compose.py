"""Policy is one pure function: ``compose(registry, task, *session) -> Effective``.

Every layer only narrows: the platform (its record, then each server's), the task (with its
profile), the person (where there is one), and each request of the session. A deny at any layer is a
veto. ``selection.py`` works out what task, person and session select; ``access.py`` compiles the
result against the tools there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from bascule.errors import SessionRefused
from bascule.model.decision import Decision, Layer, Reason, allow, deny
from bascule.model.pattern import PatternSet
from bascule.model.server import ServerRecord
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.model.user import UserRecord
from bascule.policy.selection import (
    NO_RECORD,
    UNBOUNDED,
    Bounds,
    SessionBounds,
    ToolFilter,
    UserBounds,
    session_bounds,
    task_bounds,
    user_bounds,
)


class Effective(Struct, frozen=True):
    """What a session may use, with the reason for everything it may not.

    ``servers`` are the servers it may use, in order; ``decisions`` has one line for each server
    that the task or the session named; ``warnings`` are for people.
    """

    registry: Snapshot
    servers: tuple[str, ...]
    decisions: tuple[Decision, ...]
    warnings: tuple[str, ...]
    bounds: Bounds
    session: SessionBounds
    requested: frozenset[str]
    user: UserBounds = NO_RECORD

    @property
    def revision(self) -> int:
        """Return the registry revision that decided."""
        return self.registry.revision

    @property
    def filters(self) -> tuple[ToolFilter, ...]:
        """Return the tool filters of the task, of the person and of the session."""
        return (*self.bounds.filters, *self.user.filters, *self.session.filters)

    @property
    def dropped(self) -> tuple[Decision, ...]:
        """Return the lines of the log about servers that were left out."""
        return tuple(decision for decision in self.decisions if not decision.allowed)

    @property
    def denied(self) -> tuple[Decision, ...]:
        """Return those of the left out that somebody wanted; who asks for nothing is denied none.

        A session that names servers wants these, any other one its task's defaults, unless MCP
        is off in the task or in the session.
        """
        off = not self.session.enabled or not (self.bounds.enabled or self.session.servers)
        wanted = frozenset[str]() if off else frozenset(self.requested)
        return tuple(
            decision
            for decision in self.dropped
            if decision.server in wanted or (decision.reason == "unknown_profile" and not off)
        )

    def decide(self, server: str, tool: str) -> Decision:
        """Decide on one tool by its native name, whether or not the server lists it."""
        return self.gate(server)(tool)

    def objections(self, server: str, tool: str | None = None) -> tuple[Decision, ...]:
        """Return every objection of every layer to a server, or to a tool of it by native name."""
        found = _server_objections(self, server)
        if tool is not None:
            found += self.objector(server)(tool)
        return tuple(deny(server, tool, *objection) for objection in dict.fromkeys(found))

    def objector(self, server: str) -> Objector:
        """Return what finds every objection to a tool of one server, but those to the server."""
        record = self.registry.servers.get(server)
        steps = [] if record is None else _steps(self, record)
        return lambda tool: tuple(found for step in steps if (found := step(tool)) is not None)

    def gate(self, server: str) -> Gate:
        """Return the compiled decision function for the tools of one server."""
        return _gate(self, server)


Gate = Callable[[str], Decision]
Objection = tuple[Layer, Reason, str]
Objector = Callable[[str], tuple[Objection, ...]]


def compose(
    registry: Snapshot,
    task: TaskRecord | TaskPolicy | None = None,
    *session: SessionRequest,
    environment: str | None = None,
    person: str | None = None,
    acting: bool = False,
) -> Effective:
    """Return what a session of a task may use; raise SessionRefused when it asks for more.

    A session may come with any number of requests: it has what all of them leave, in any order.
    Without a task only the platform bounds it, and it uses just the servers it names. ``person`` is
    for whom it is; ``acting`` says that a client which may speak for people named them.
    """
    policy = task.mcp if isinstance(task, TaskRecord) else task
    bounds = UNBOUNDED if policy is None else task_bounds(registry, policy, environment)
    user = user_bounds(admitted(registry, policy, person, acting=acting))
    for one in session:
        _refuse_excess(bounds, one)
    asked = session_bounds(session)
    requested = bounds.default or () if asked.servers is None else asked.servers
    candidates = dict.fromkeys((*requested, *bounds.named))
    wanted = frozenset(requested)
    draft = Effective(registry, (), (), (), bounds, asked, wanted, user)
    decisions = tuple(_server_decision(draft, server) for server in candidates)
    servers = tuple(decision.server for decision in decisions if decision.allowed)
    warnings = (*bounds.warnings, *_emptiness(bounds, asked, servers))
    return Effective(registry, servers, decisions, warnings, bounds, asked, wanted, user)


def for_anybody(task: TaskRecord | TaskPolicy) -> TaskPolicy:
    """Return a task's policy without the question who asks: what it leaves to whom it is for."""
    policy = task.mcp if isinstance(task, TaskRecord) else task
    return replace(policy, allowed_groups=None)


def admitted(
    registry: Snapshot, policy: TaskPolicy | None, person: str | None, *, acting: bool = False
) -> UserRecord | None:
    """Return the record of whom a session is for; raise SessionRefused for who may have none."""
    record = None if person is None else registry.users.get(person)
    if person is not None and record is None and not (acting and _is_open(policy)):
        message = f"there is no user {person!r}; administrators add people"
        raise SessionRefused("unknown_user", message)
    if record is not None and not record.enabled:
        message = f"user {person!r} is disabled; administrators enable people"
        raise SessionRefused("user_disabled", message)
    groups = None if policy is None else policy.allowed_groups
    if groups is not None and not set(groups) & set(() if record is None else record.groups):
        who = "a session without a person" if person is None else f"user {person!r}"
        listed = ", ".join(groups) or "nobody"
        message = f"the task is for {listed} (mcp.allowed_groups); {who} is in none of them"
        raise SessionRefused("group_not_allowed", message)
    return record


def _is_open(policy: TaskPolicy | None) -> bool:
    return policy is not None and policy.users == "open"


def _refuse_excess(bounds: Bounds, asked: SessionRequest) -> None:
    if asked.enabled and not bounds.enabled:
        raise SessionRefused("task_disabled", "the session enables MCP but its task does not")
    for server in asked.server_ids or ():
        if bounds.allowed is not None and server not in bounds.allowed:
            raise SessionRefused(
                "not_allowed",
                f"the session asks for server {server!r}, which is outside the servers its task "
                f"allows ({', '.join(sorted(bounds.allowed)) or 'none'})",
                server=server,
            )


def _emptiness(bounds: Bounds, asked: SessionBounds, servers: tuple[str, ...]) -> list[str]:
    wanted = bounds.enabled and asked.enabled and bounds is not UNBOUNDED
    return ["MCP is enabled but no server is effective"] if wanted and not servers else []


def _server_decision(draft: Effective, server: str) -> Decision:
    """Return the first layer's objection to a server, or that there is none."""
    found = _server_objections(draft, server)
    return deny(server, None, *found[0]) if found else allow(server, None)


def _server_objections(draft: Effective, server: str) -> list[Objection]:
    """Return what every layer has against a server, in the order of the layers."""
    return [
        *_of_platform(draft.registry.servers.get(server)),
        *_of_task(draft.bounds, server),
        *_of_user(draft.user, server),
        *_of_session(draft, server),
    ]


def _of_platform(record: ServerRecord | None) -> Iterator[Objection]:
    if record is None:
        yield "platform", "unknown_server", ""
        return
    if not record.enabled:
        yield "platform", "server_disabled", "enabled = false"
    if not record.allowed_tools:
        yield "platform", "deny_all", "allowed_tools = []"


def _of_task(bounds: Bounds, server: str) -> Iterator[Objection]:
    if not bounds.enabled:
        yield "task", "task_disabled", "mcp.enabled"
    if bounds.missing_profile is not None:
        yield "task", "unknown_profile", f"mcp.profile = {bounds.missing_profile!r}"
    elif bounds.allowed is not None and server not in bounds.allowed:
        yield "task", "not_allowed", "mcp.allowed_server_ids"


def _of_user(user: UserBounds, server: str) -> Iterator[Objection]:
    for source, enabled in user.servers:
        if server not in enabled:
            yield "user", "user_not_enabled", f"{source} enabled_server_ids"


def _of_session(draft: Effective, server: str) -> Iterator[Objection]:
    for layer in draft.session.layers:
        if not layer.enabled:
            yield "session", "session_disabled", layer.rule("enabled")
        if layer.servers is not None and server not in layer.servers:
            yield "session", "not_requested", layer.rule("server_ids")
    if draft.session.servers is not None or server in draft.requested:
        return
    if draft.bounds is UNBOUNDED:
        yield "session", "not_requested", "mcp.server_ids"
    else:
        yield "task", "not_default", "mcp.default_server_ids"


def _gate(effective: Effective, server: str) -> Gate:
    """Compile the layers' filters over one server into a function of the tool's name."""
    verdict = _server_decision(effective, server)
    record = effective.registry.servers.get(server)
    if record is None or not verdict.allowed:
        return lambda tool: deny(server, tool, verdict.layer, verdict.reason, verdict.rule)
    steps = _steps(effective, record)

    def decide(tool: str) -> Decision:
        for step in steps:
            objection = step(tool)
            if objection is not None:
                return deny(server, tool, *objection)
        return allow(server, tool)

    return decide


Step = Callable[[str], Objection | None]


def _steps(effective: Effective, record: ServerRecord) -> list[Step]:
    """Return the checks that can object, in the order of the layers; idle ones are left out."""
    server = record.server_id
    steps: list[Step] = []
    if record.allowed_tools:  # that it allows nothing at all is said of the server
        steps.append(_allowed_tools(server, PatternSet(record.allowed_tools)))
    denied = PatternSet(effective.registry.platform.tool_denylist)
    if denied:
        steps.append(_denies(server, denied, ("platform", "platform_denied", "platform")))
    reads = PatternSet(record.effects.read)
    for source in effective.filters:
        steps += _filter_steps(server, source, reads)
    return steps


def _allowed_tools(server: str, allowed: PatternSet) -> Step:
    objection: Objection = ("platform", "not_in_allowed_tools", "allowed_tools")
    if "*" in allowed.texts:
        return lambda tool: None
    return lambda tool: None if allowed.first(server, tool) is not None else objection


def _denies(server: str, patterns: PatternSet, objection: Objection) -> Step:
    layer, reason, source = objection

    def step(tool: str) -> Objection | None:
        found = patterns.first(server, tool)
        return None if found is None else (layer, reason, f"{source} tool_denylist {found!r}")

    return step


#: What each layer says of a tool that is not listed, that is denied, that is not only read.
_FILTERED: Mapping[Layer, tuple[Reason, Reason, Reason]] = {
    "task": ("task_not_allowlisted", "task_denied", "task_read_only"),
    "user": ("user_not_allowlisted", "user_denied", "user_read_only"),
    "session": ("session_not_allowlisted", "session_denied", "session_read_only"),
}


def _filter_steps(server: str, source: ToolFilter, reads: PatternSet) -> list[Step]:
    layer = source.layer
    unlisted, denied, not_read = _FILTERED[layer]
    steps: list[Step] = []
    if source.allow is not None and "*" not in source.allow.texts:
        missing: Objection = (layer, unlisted, f"{source.source} tool_allowlist")
        listed = source.allow
        steps.append(lambda tool: None if listed.first(server, tool) is not None else missing)
    if source.deny:
        steps.append(_denies(server, source.deny, (layer, denied, source.source)))
    if source.read_only:
        writes: Objection = (layer, not_read, f"{source.source} read_only")
        steps.append(lambda tool: None if reads.first(server, tool) is not None else writes)
    return steps
