"""A denial of the layer of people is printed with the command that lifts it."""

from __future__ import annotations

import pytest

from bascule.errors import SessionRefused
from bascule.model.json import JsonObject
from bascule.model.server import ServerRecord, Stdio
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.model.user import UserFilters, UserRecord
from bascule.policy.compose import compose
from bascule.policy.edits import admitting, lifting

NOTES = ServerRecord(
    server_id="notes", transport="stdio", stdio=Stdio(command="x"), allowed_tools=("*",)
)
TASK = TaskRecord(task_id="demo", mcp=TaskPolicy(enabled=True, default_server_ids=("notes",)))
CLOSED = TaskRecord(
    task_id="closed",
    mcp=TaskPolicy(enabled=True, default_server_ids=("notes",), allowed_groups=("writers",)),
)


def registry(*users: UserRecord) -> Snapshot:
    return Snapshot(
        servers={"notes": NOTES},
        tasks={"demo": TASK, "closed": CLOSED},
        users={one.user_id: one for one in users},
    )


def denial(snapshot: Snapshot, person: str | None, task: TaskRecord) -> JsonObject:
    """Return the decision on notes/delete_note as the command line is told of it."""
    try:
        found = compose(snapshot, task, person=person).decide("notes", "delete_note")
    except SessionRefused as refused:
        return {"server": None, "reason": refused.reason, "rule": str(refused)}
    assert not found.allowed
    return {"server": "notes", "tool": "delete_note", "reason": found.reason, "rule": found.rule}


BOB = {
    "users add bob": (None, TASK),
    "users enable bob": (UserRecord(user_id="bob", enabled=False), TASK),
    """users set bob 'groups=["readers", "writers"]'""": (
        UserRecord(user_id="bob", groups=("readers",)),
        CLOSED,
    ),
    """users set bob 'enabled_server_ids=["files", "notes"]'""": (
        UserRecord(user_id="bob", enabled_server_ids=("files",)),
        TASK,
    ),
    """users set bob 'tool_allowlist=["read_*", "delete_note"]'""": (
        UserRecord(user_id="bob", tool_allowlist=("read_*",)),
        TASK,
    ),
    """users set bob 'tool_denylist=["write_*"]'""": (
        UserRecord(user_id="bob", tool_denylist=("write_*", "delete_*", "notes/delete_note")),
        TASK,
    ),
    "users set bob read_only=false": (UserRecord(user_id="bob", read_only=True), TASK),
    "": (UserRecord(user_id="bob", own=UserFilters(tool_denylist=("delete_*",))), TASK),
}


@pytest.mark.requirement("cli:next-command")
@pytest.mark.parametrize("command", BOB)
def test_what_a_record_denies_is_lifted_by_one_command(command: str):
    record, task = BOB[command]
    snapshot = registry(*(() if record is None else (record,)))
    decision = denial(snapshot, "bob", task)
    assert lifting(snapshot, decision, task.task_id) == command
    told = admitting(None, decision, "")
    assert told == (command if "[" not in command else "")


def test_a_task_for_groups_is_entered_with_a_token_of_somebody_in_them():
    off = UserRecord(user_id="ann", groups=("writers",), enabled=False)
    ada = UserRecord(user_id="ada", groups=("writers",))
    snapshot = registry(off, ada)
    decision = denial(snapshot, None, CLOSED)
    made = "tokens create --role client --task closed --user ada"
    assert lifting(snapshot, decision, "closed") == made
    assert lifting(registry(off), decision, "closed") == ""
