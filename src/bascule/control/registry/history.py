"""Going back and comparing: what changed between two revisions, and the way back.

``service.py`` reads the revisions and writes a rollback as a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from bascule.control.registry.changes import field_changes, words_of
from bascule.control.registry.store import Key, View, Write
from bascule.errors import SessionRefused
from bascule.model.access_diff import AccessDiff, ToolChange
from bascule.model.decision import Decision, Reason, deny
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot, SnapshotDiff, diff_snapshots
from bascule.model.task import TaskPolicy
from bascule.policy.access import Catalogue
from bascule.policy.compose import Effective, compose, for_anybody
from bascule.policy.explain import diff
from bascule.wire.api.history import (
    AccessChanges,
    FieldChange,
    RevisionDiff,
    TaskAccess,
    UserAccess,
)

_NO_TASK = TaskPolicy()
#: Of so many people a comparison says what they may use; the records of all are in it.
MAX_PEOPLE = 50


def compare(
    old: Snapshot,
    new: Snapshot,
    *,
    environment: str | None = None,
    catalogue: Catalogue | None = None,
) -> RevisionDiff:
    """Compare two snapshots: by pattern, and by tool where the tools are known."""
    tasks = [
        TaskAccess(
            task,
            *(
                _said_of_missing(
                    task,
                    (old, new),
                    diff(one(old, task, environment), one(new, task, environment), catalogue),
                )
                for one in (_by_default, _at_most)
            ),
        )
        for task in sorted({*old.tasks, *new.tasks})
    ]
    records = diff_snapshots(old, new)
    access = AccessChanges(
        diff(_widest(old), _widest(new), catalogue),
        tuple(task for task in tasks if task),
        tuple(_user_access(old, new, user, catalogue) for user in _people(records)),
    )
    fields = field_changes(old, new, records)
    return RevisionDiff(
        old=old.revision,
        new=new.revision,
        changes=records.changes,
        fields=fields,
        reconnect=records.reconnect,
        access=access,
        text=_text(records, fields, access),
    )


def _text(records: SnapshotDiff, fields: Sequence[FieldChange], access: AccessChanges) -> str:
    lines: list[str] = []
    for line in str(records).splitlines():
        changed = [one for one in fields if line == f"~ {one.kind} {one.id}"]
        lines += [line, *(f"    {words_of(one)}" for one in changed)]
    if access.platform:
        lines += ["", "the platform allows:", _indented(access.platform)]
    lines += [f"\n{_task_text(task)}" for task in access.tasks]
    lines += [f"\nuser {one.user}, at most:\n{_indented(one.most)}" for one in access.users]
    return "\n".join(lines)


def _task_text(access: TaskAccess) -> str:
    both = (("by default", access.default), ("at most", access.most))
    found = [(how, change) for how, change in both if change]
    return "\n".join(f"task {access.task}, {how}:\n{_indented(one)}" for how, one in found)


def _said_of_missing(task: str, both: tuple[Snapshot, Snapshot], found: AccessDiff) -> AccessDiff:
    """Put the truth where a task came or went: it is not switched off, it is not there."""
    old, new = (task in snapshot.tasks for snapshot in both)
    if old and new:
        return found
    return AccessDiff(
        found.servers_gained,
        found.servers_lost if new else tuple(map(_no_task, found.servers_lost)),
        tuple(
            ToolChange(
                change.name,
                change.before if old else _no_task(change.before),
                change.after if new else _no_task(change.after),
            )
            for change in found.tools
        ),
        found.filters,
    )


def _no_task(decision: Decision | None) -> Decision:
    server, tool = ("", None) if decision is None else (decision.server, decision.tool)
    return deny(server, tool, "task", "no_task")


def _by_default(registry: Snapshot, task: str, environment: str | None) -> Effective:
    return compose(registry, _task(registry, task), environment=environment)


def _at_most(registry: Snapshot, task: str, environment: str | None) -> Effective:
    """Compose the widest session of a task: one that asks for every server it may have."""
    allowed = _by_default(registry, task, environment).bounds.allowed
    servers = registry.servers if allowed is None else allowed
    asked = SessionRequest(server_ids=tuple(sorted(servers)))
    return compose(registry, _task(registry, task), asked, environment=environment)


def _task(registry: Snapshot, task: str) -> TaskPolicy:
    return for_anybody(registry.tasks.get(task, _NO_TASK))


def _widest(registry: Snapshot, person: str | None = None) -> Effective:
    asked = SessionRequest(server_ids=tuple(registry.servers))
    return compose(registry, None, asked, person=person)


def _people(records: SnapshotDiff) -> list[str]:
    """Return whose records differ; more than some are of no help to a reader, and cost."""
    changes = [change for change in records.changes if change.kind == "user"]
    names = (n for one in changes for n in (*one.added, *one.changed, *one.removed))
    return sorted(names)[:MAX_PEOPLE]


def _user_access(
    old: Snapshot, new: Snapshot, user: str, catalogue: Catalogue | None
) -> UserAccess:
    """Compare what a person may use at the most; who is refused may use nothing."""
    (before, had), (after, has) = _at_most_for(old, user), _at_most_for(new, user)
    found = diff(before, after, catalogue)
    return UserAccess(user, _said_of_refused(found, had, has))


def _at_most_for(registry: Snapshot, user: str) -> tuple[Effective, Reason | None]:
    try:
        return _widest(registry, user), None
    except SessionRefused:
        reason: Reason = "user_disabled" if user in registry.users else "unknown_user"
        return compose(registry), reason


def _said_of_refused(found: AccessDiff, had: Reason | None, has: Reason | None) -> AccessDiff:
    return AccessDiff(
        found.servers_gained,
        tuple(_for_person(one, has) for one in found.servers_lost),
        tuple(
            ToolChange(change.name, _for_person(change.before, had), _for_person(change.after, has))
            for change in found.tools
        ),
        found.filters,
    )


def _for_person(decision: Decision | None, refused: Reason | None) -> Decision:
    server, tool = ("", None) if decision is None else (decision.server, decision.tool)
    if refused is None and decision is not None:
        return decision
    return deny(server, tool, "user", refused or "unknown_user")


def _indented(text: object) -> str:
    return "\n".join(f"  {line}" for line in str(text).splitlines())


def way_back(now: View, then: View, only: Collection[Key] | None = None) -> list[Write]:
    """Return the writes that make the records of ``now`` those of ``then``.

    What comes back is nobody's file any more, even if a file owned it then.
    """
    return [write for write in _differences(now, then) if only is None or write.key in only]


def _differences(now: View, then: View) -> Iterator[Write]:
    for key in sorted({*now.objects, *then.objects}):
        current, wanted = now.objects.get(key), then.objects.get(key)
        if wanted is None:
            yield Write(kind=key[0], id=key[1], record=None)
        elif current is None or current.body != wanted.body:
            yield Write(kind=key[0], id=key[1], record=wanted.record, extra=wanted.extra)
