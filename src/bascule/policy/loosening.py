"""What a new record allows that the old one did not, in words with the path of the field.

It is for people who look after what was changed, and errs on the safe side: what the two texts do
not tell for certain is named. A record that only narrows, or says the same in another order, has
nothing to name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import fields

from bascule.model.kinds import Record
from bascule.model.pattern import Pattern
from bascule.model.platform import Ceilings, PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import (
    SHARINGS,
    ApprovalMode,
    ApprovalPolicy,
    ApprovalRule,
    Budgets,
    Hygiene,
    Redaction,
    RedactKeys,
    ServerRecord,
    Sharing,
)
from bascule.model.task import Selection, TaskPolicy, TaskRecord
from bascule.model.user import UserFilters, UserRecord
from bascule.policy.coverage import covers
from bascule.policy.sandbox_loosening import looser_floor, looser_sandbox

#: How many lines there are at most; more is of no help to a reader.
MAX_LINES = 32
#: More pairs of patterns are not compared, which costs; then all that is new is named.
MAX_PAIRS = 4096

_APPROVAL: Sequence[str] = ("never", "policy", "always")
LEAKS: Sequence[str] = ("off", "mask", "block")
_OUTPUT_SCHEMA: Sequence[str] = ("off", "warn", "refuse")
_USERS: Sequence[str] = ("open", "records")
_SHARERS: Mapping[Sharing, str] = {
    "shared": "sessions",
    "task": "sessions of a task",
    "user": "sessions of a person",
}


def loosened(before: Record | None, after: Record | None) -> tuple[str, ...]:
    """Return what a record allows that the one before did not; None is a record that is not there.

    A deleted record allows nothing any more, but for the platform's, which governs the others, and
    for a person's that narrows: a task with ``users = "open"`` does without.
    """
    if isinstance(before or after, PlatformRecord):
        before, after = before or PlatformRecord(), after or PlatformRecord()
    if before == after:
        return ()
    if after is None:
        return tuple(_removed(before))
    lines = list(_new(after) if before is None else _changed(before, after))
    more = len(lines) - MAX_LINES
    return (*lines[:MAX_LINES], f"and {more} more") if more > 0 else tuple(lines)


def _removed(record: Record | None) -> Iterator[str]:
    if isinstance(record, UserRecord) and (not record.enabled or narrows(record)):
        yield "removed: does not narrow the person any more in tasks with users = 'open'"


def _new(record: Record) -> Iterator[str]:
    if isinstance(record, ServerRecord) and record.enabled and record.allowed_tools:
        yield f"new: allows {_some(record.allowed_tools)}"
    elif isinstance(record, TaskRecord) and record.mcp.enabled:
        yield "new: its sessions may use what it selects"
    elif isinstance(record, ProfileRecord):
        yield "new: tasks that name it may use what it selects"
    elif isinstance(record, UserRecord) and record.enabled:
        yield "new: the person may use what tasks allow"


def _changed(before: Record, after: Record) -> Iterator[str]:
    if isinstance(before, ServerRecord) and isinstance(after, ServerRecord):
        yield from _server(before, after)
    elif isinstance(before, TaskRecord) and isinstance(after, TaskRecord):
        yield from _task(before.mcp, after.mcp)
        if after.executable is not None and before.executable != after.executable:
            yield "executable: the task runs something else"
    elif isinstance(before, ProfileRecord) and isinstance(after, ProfileRecord):
        yield from _profile(before, after)
    elif isinstance(before, PlatformRecord) and isinstance(after, PlatformRecord):
        yield from _denied("tool_denylist", before.tool_denylist, after.tool_denylist)
        yield from _mode("default_approval", before.default_approval, after.default_approval)
        yield from _rules("rules", before.rules, after.rules)
        yield from _limits("ceilings.", before.ceilings, after.ceilings)
        yield from looser_floor(before.sandbox, after.sandbox)
    elif isinstance(before, UserRecord) and isinstance(after, UserRecord):
        yield from _user(before, after)


# --- servers


def _server(before: ServerRecord, after: ServerRecord) -> Iterator[str]:
    if after.enabled and not before.enabled:
        yield "enabled: turned on"
    yield from _words("tags", "selects it now", _added(before.tags, after.tags))
    yield from _allowed("allowed_tools", before.allowed_tools, after.allowed_tools)
    if before.connection()[:-1] != after.connection()[:-1]:
        yield "connection: another program, address, environment or credential"
    if SHARINGS.index(after.sharing) < SHARINGS.index(before.sharing):
        yield f"sharing: {_SHARERS[after.sharing]} share one connection"
    yield from looser_sandbox(before, after)
    old, new = before.effects, after.effects
    yield from _allowed("effects.read", old.read, new.read, "counts as reading now")
    yield from _allowed(
        "effects.idempotent", old.idempotent, new.idempotent, "may be sent again now"
    )
    yield from _limits("budgets.", before.budgets, after.budgets)
    yield from _approval("approval_policy.", before.approval_policy, after.approval_policy)
    yield from _hygiene("hygiene.", before.hygiene, after.hygiene)


def _hygiene(path: str, before: Hygiene, after: Hygiene) -> Iterator[str]:
    yield from _weaker(f"{path}leaks", before.leaks, after.leaks, LEAKS)
    yield from _weaker(
        f"{path}output_schema", before.output_schema, after.output_schema, _OUTPUT_SCHEMA
    )
    if _shows_more(before.redact, after.redact):
        yield f"{path}redact: more of the arguments is written down"


def _shows_more(before: Redaction, after: Redaction) -> bool:
    if after in ("shape", before) or before == "full":
        return False
    if isinstance(before, RedactKeys) and isinstance(after, RedactKeys):
        return not set(before.keys) <= set(after.keys)
    return True


def _limits(path: str, before: Budgets | Ceilings, after: Budgets | Ceilings) -> Iterator[str]:
    """Name every number that is higher, or not bounded any more."""
    for field in fields(before):
        old: int | None = getattr(before, field.name)
        new: int | None = getattr(after, field.name)
        bounds = isinstance(before, Ceilings)  # there, what is absent bounds nothing
        if old == new or (old is None and bounds):
            continue
        if old is None or new is None or new > old:
            yield f"{path}{field.name}: {_number(old)} became {_number(new)}"


def _number(value: int | None) -> str:
    return "none" if value is None else str(value)


# --- approval


def _approval(path: str, before: ApprovalPolicy, after: ApprovalPolicy) -> Iterator[str]:
    yield from _mode(f"{path}default", before.default, after.default)
    yield from _per_tool(f"{path}per_tool", before, after)
    yield from _rules(f"{path}rules", before.rules, after.rules)


def _mode(path: str, before: ApprovalMode, after: ApprovalMode) -> Iterator[str]:
    yield from _weaker(path, before, after, _APPROVAL)


def _per_tool(path: str, before: ApprovalPolicy, after: ApprovalPolicy) -> Iterator[str]:
    """Name modes that are looser; new and lost ones where another entry may have been stricter."""
    old, new, rank = before.per_tool, after.per_tool, _APPROVAL.index
    strictest = max(map(rank, (before.default, *old.values())))
    loosest = min(map(rank, (after.default, *new.values())))
    for text in dict.fromkeys((*old, *new)):
        if text in old and text in new:
            yield from _mode(f"{path}.{text}", old[text], new[text])
        elif text in new and rank(new[text]) < strictest:
            yield f"{path}.{text}: {new[text]!r} added"
        elif text in old and rank(old[text]) > loosest:
            yield f"{path}.{text}: {old[text]!r} removed"


def _rules(
    path: str, before: Sequence[ApprovalRule], after: Sequence[ApprovalRule]
) -> Iterator[str]:
    """The first rule that holds decides: only rules added at the end are sure to tighten."""
    if tuple(before) == tuple(after[: len(before)]):
        for rule in after[len(before) :]:
            if rule.effect == "allow":
                yield f"{path}: {_rule(rule)} added"
        return
    gone = [rule for rule in before if rule not in after]
    for rule in gone:
        yield f"{path}: {_rule(rule)} removed"
    if not gone:
        yield f"{path}: another order, or rules put before others"


def _rule(rule: ApprovalRule) -> str:
    when = "" if rule.when is None else f" when {rule.when}"
    return f"{rule.effect} for {_some(rule.tools)}{when}"


# --- tasks and profiles


def _task(before: TaskPolicy, after: TaskPolicy) -> Iterator[str]:
    if after.enabled and not before.enabled:
        yield "mcp.enabled: turned on"
    yield from _selection("mcp.", before, after)
    if after.max_tools > before.max_tools:
        yield f"mcp.max_tools: {before.max_tools} became {after.max_tools}"
    for name in ("max_iterations", "max_total_tool_calls", "max_tool_output_bytes"):
        old: int | None = getattr(before, name)
        new: int | None = getattr(after, name)
        if old is not None and (new is None or new > old):
            yield f"mcp.{name}: {old} became {_number(new)}"
    if before.profile != after.profile and (before.profile or not _only_narrows(after)):
        yield f"mcp.profile: {before.profile!r} became {after.profile!r}"
    old_overrides, overrides = before.profile_overrides, after.profile_overrides
    yield from _source("mcp.profile_overrides", old_overrides, overrides, beside=after)
    yield from _people(before, after)


def _people(before: TaskPolicy, after: TaskPolicy) -> Iterator[str]:
    yield from _weaker("mcp.users", before.users, after.users, _USERS)
    old, new = before.allowed_groups, after.allowed_groups
    yield from _listed("mcp.allowed_groups", old, new, "may use it now")
    if after.user_from_request and not before.user_from_request:
        yield "mcp.user_from_request: turned on"


def _profile(before: ProfileRecord, after: ProfileRecord) -> Iterator[str]:
    yield from _selection("", before, after)
    for name in dict.fromkeys((*before.environments, *after.environments)):
        old, new = before.environments.get(name), after.environments.get(name)
        yield from _source(f"environments.{name}", old, new, beside=after)


def _source(
    path: str, before: Selection | None, after: Selection | None, *, beside: Selection
) -> Iterator[str]:
    """Compare a source that stands beside another: one more narrows, if there is what to narrow."""
    if before is not None and after is not None:
        yield from _selection(f"{path}.", before, after)
    elif before is not None:
        yield f"{path}: removed"
    elif after is not None and not _only_narrows(beside):
        yield f"{path}: added, and may choose servers"


def _only_narrows(selection: Selection) -> bool:
    """Say whether sources beside a selection can only narrow it: it chooses servers itself."""
    return selection.default_server_ids is not None


def _selection(path: str, before: Selection, after: Selection) -> Iterator[str]:
    for name in ("default_server_ids", "allowed_server_ids"):
        old, new = _servers(before, name), _servers(after, name)
        if not _within(new, old):
            given = getattr(after, name)
            extra = _added(getattr(before, name) or (), given or ())
            yield f"{path}{name}: {_some(extra) if extra else 'other servers'} may be used now"
    yield from _tools(path, before, after)


def _tools(
    path: str, before: Selection | UserFilters, after: Selection | UserFilters
) -> Iterator[str]:
    allowed = after.tool_allowlist
    if before.tool_allowlist is not None and allowed is None:
        yield f"{path}tool_allowlist: removed"
    elif before.tool_allowlist is not None and allowed is not None:
        yield from _allowed(f"{path}tool_allowlist", before.tool_allowlist, allowed)
    yield from _denied(f"{path}tool_denylist", before.tool_denylist, after.tool_denylist)
    if before.read_only and not after.read_only:
        yield f"{path}read_only: turned off"


#: The servers that a selection says: their ids and their tags, None where either does not narrow.
_Servers = tuple[frozenset[str] | None, frozenset[str] | None]


def _servers(selection: Selection, name: str) -> _Servers | None:
    """Return what a selection says of its defaults or its ceiling; None if nothing.

    As ``selection.py`` reads it: without a ceiling the defaults are the ceiling, and tags select
    where no ids are given.
    """
    default, allowed = selection.default_server_ids, selection.allowed_server_ids
    ids = default if name == "default_server_ids" or allowed is None else allowed
    tags = selection.server_tags
    if ids is None and (tags is None or default is not None or allowed is not None):
        return None
    return None if ids is None else frozenset(ids), None if tags is None else frozenset(tags)


def _within(new: _Servers | None, old: _Servers | None) -> bool:
    """Say whether one choice is surely part of another; to say nothing may be more or less."""
    if new is None or old is None:
        return new is old
    pairs = zip(new, old, strict=True)
    return all(had is None or (has is not None and has <= had) for has, had in pairs)


# --- people


def narrows(filters: UserFilters) -> bool:
    """Say whether a person's record, or their own choice, leaves out anything."""
    lists = (filters.enabled_server_ids, filters.tool_allowlist)
    narrow = bool(filters.tool_denylist) or filters.read_only
    own = filters.own if isinstance(filters, UserRecord) else None
    return narrow or any(one is not None for one in lists) or (own is not None and narrows(own))


def _user(before: UserRecord, after: UserRecord) -> Iterator[str]:
    if after.enabled and not before.enabled:
        yield "enabled: turned on"
    yield from _words("groups", "added", _added(before.groups, after.groups))
    # A rule may deny a group, or ask for its members.
    yield from _words("groups", "removed", _added(after.groups, before.groups))
    yield from _filters("", before, after)
    yield from _filters("own.", before.own or UserFilters(), after.own or UserFilters())


def _filters(path: str, before: UserFilters, after: UserFilters) -> Iterator[str]:
    old, new = before.enabled_server_ids, after.enabled_server_ids
    yield from _listed(f"{path}enabled_server_ids", old, new, "may be used now")
    yield from _tools(path, before, after)


def _listed(
    path: str, before: Sequence[str] | None, after: Sequence[str] | None, what: str
) -> Iterator[str]:
    """Name what a list of names has more; one that is not there bounds nothing."""
    if before is not None and after is None:
        yield f"{path}: removed"
    elif before is not None and after is not None:
        yield from _words(path, what, _added(before, after))


# --- patterns and words


def _allowed(
    path: str, before: Sequence[str], after: Sequence[str], what: str = "allowed now"
) -> Iterator[str]:
    yield from _words(path, what, _uncovered(after, before))


def _denied(path: str, before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    yield from _words(path, "not denied any more", _uncovered(before, after))


def _uncovered(patterns: Sequence[str], by: Sequence[str]) -> list[str]:
    """Return the patterns that are not surely covered by others."""
    if "*" in by:
        return []
    left = _added(by, patterns)
    if len(left) * len(by) > MAX_PAIRS:
        return left
    wide = [Pattern.parse(text) for text in by]
    return [text for text in left if not _is_covered(Pattern.parse(text), wide)]


def _is_covered(pattern: Pattern, by: Iterable[Pattern]) -> bool:
    return any(
        wide.server in (None, pattern.server) and covers(wide.glob, pattern.glob) for wide in by
    )


def _added(before: Iterable[str], after: Iterable[str]) -> list[str]:
    known = frozenset(before)
    return [text for text in dict.fromkeys(after) if text not in known]


def _weaker(path: str, before: str, after: str, order: Sequence[str]) -> Iterator[str]:
    """Name a step down in an order from the weakest to the strictest."""
    if order.index(after) < order.index(before):
        yield f"{path}: {before!r} became {after!r}"


def _words(path: str, what: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield f"{path}: {_some(texts)} {what}"


def _some(texts: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(repr(text) for text in texts[:most])
    return f"{shown} and {len(texts) - most} more" if len(texts) > most else shown
