"""What a new record allows that the old one did not: each field by its path, and no more."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert

from bascule.model.backend import BackendRecord
from bascule.model.task import TaskRecord
from bascule.model.user import UserRecord
from bascule.policy.loosening import MAX_LINES, loosened
from tests.policy.build import platform, profile, server


def task(**mcp: Any) -> TaskRecord:
    return convert({"task_id": "t", "mcp": {"enabled": True} | mcp}, TaskRecord)


SANDBOX: dict[str, Any] = {
    "level": "namespaces",
    "required": True,
    "read": ["/lib"],
    "write": ["/data"],
    "network": "none",
    "memory_mb": 100,
    "cpu_seconds": 9,
}
SERVER: dict[str, Any] = {
    "sandbox": SANDBOX,
    "enabled": False,
    "tags": ["scm"],
    "allowed_tools": ["read_*"],
    "sharing": "session",
    "effects": {"read": ["read_a"], "idempotent": ["read_a"]},
    "budgets": {"tool_timeout_ms": 1000, "start_timeout_ms": 500},
    "approval_policy": {
        "default": "policy",
        "per_tool": {"write": "always"},
        "rules": [{"effect": "deny", "tools": ["delete_*"], "when": "args.n > 1"}, {}],
    },
    "hygiene": {"leaks": "block", "redact": {"keys": ["a", "b"]}, "output_schema": "refuse"},
}
#: The field that changes, and what is said of it.
LOOSER: dict[str, tuple[dict[str, Any], str]] = {
    "on": ({"enabled": True}, "enabled: turned on"),
    "tags": ({"tags": ["scm", "web"]}, "tags: 'web' selects it now"),
    "tools": ({"allowed_tools": ["read_*", "write"]}, "allowed_tools: 'write' allowed now"),
    "wider": ({"allowed_tools": ["re*"]}, "allowed_tools: 're*' allowed now"),
    "all": ({"allowed_tools": ["*"]}, "allowed_tools: '*' allowed now"),
    "command": (
        {"stdio": {"command": "false"}},
        "connection: another program, address, environment or credential",
    ),
    "shared": ({"sharing": "shared"}, "sharing: sessions share one connection"),
    "shared by a task": ({"sharing": "task"}, "sharing: sessions of a task share one connection"),
    "level": (
        {"sandbox": {**SANDBOX, "level": "landlock"}},
        "sandbox.level: 'namespaces' became 'landlock'",
    ),
    "no sandbox": ({"sandbox": None}, "sandbox.level: 'namespaces' became 'none'"),
    "not required": ({"sandbox": {**SANDBOX, "required": False}}, "sandbox.required: turned off"),
    "network": (
        {"sandbox": {**SANDBOX, "network": "full"}},
        "sandbox.network: 'none' became 'full'",
    ),
    "written folder": (
        {"sandbox": {**SANDBOX, "write": ["/data", "/out"]}},
        "sandbox.write: '/out' granted now",
    ),
    "read folder": (
        {"sandbox": {**SANDBOX, "read": ["/lib", "/lib/x", "/data/..", "/etc"]}},
        "sandbox.read: '/data/..', '/etc' granted now",
    ),
    "memory": ({"sandbox": {**SANDBOX, "memory_mb": 200}}, "sandbox.memory_mb: 100 became 200"),
    "processor": (
        {"sandbox": {**SANDBOX, "cpu_seconds": None}},
        "sandbox.cpu_seconds: 9 became none",
    ),
    "build": ({"sandbox": {**SANDBOX, "build": True}}, "sandbox.build: turned on"),
    "reads": (
        {"effects": {"read": ["*"], "idempotent": ["read_a"]}},
        "effects.read: '*' counts as reading now",
    ),
    "again": (
        {"effects": {"read": ["read_a"], "idempotent": ["read_a", "write"]}},
        "effects.idempotent: 'write' may be sent again now",
    ),
    "time": (
        {"budgets": {"tool_timeout_ms": 2000, "start_timeout_ms": 500}},
        "budgets.tool_timeout_ms: 1000 became 2000",
    ),
    "start": (
        {"budgets": {"tool_timeout_ms": 1000}},
        "budgets.start_timeout_ms: 500 became none",
    ),
    "leaks": (
        {"hygiene": {**SERVER["hygiene"], "leaks": "mask"}},
        "hygiene.leaks: 'block' became 'mask'",
    ),
    "schema": (
        {"hygiene": {**SERVER["hygiene"], "output_schema": "warn"}},
        "hygiene.output_schema: 'refuse' became 'warn'",
    ),
    "keys": (
        {"hygiene": {**SERVER["hygiene"], "redact": {"keys": ["a", "c"]}}},
        "hygiene.redact: more of the arguments is written down",
    ),
    "full": (
        {"hygiene": {**SERVER["hygiene"], "redact": "full"}},
        "hygiene.redact: more of the arguments is written down",
    ),
}


@pytest.mark.requirement("audit:policy-loosened")
@pytest.mark.parametrize("case", LOOSER)
def test_each_field_of_a_server_that_allows_more_is_named_by_its_path(case: str):
    change, words = LOOSER[case]
    before, after = server("fs", **SERVER), server("fs", **(SERVER | change))
    assert loosened(before, after) == (words,)
    back = loosened(after, before)
    assert back == () or case in ("command", "start", "keys"), back


APPROVAL: dict[str, tuple[dict[str, Any], str]] = {
    "default": ({"default": "never"}, "default: 'policy' became 'never'"),
    "tool": ({"per_tool": {"write": "policy"}}, "per_tool.write: 'always' became 'policy'"),
    "tool removed": ({"per_tool": {}}, "per_tool.write: 'always' removed"),
    "tool added": (
        {"per_tool": {"write": "always", "read_*": "never"}},
        "per_tool.read_*: 'never' added",
    ),
    "rule removed": ({"rules": [{}]}, "rules: deny for 'delete_*' when args.n > 1 removed"),
    "rules turned": (
        {"rules": [{}, {"effect": "deny", "tools": ["delete_*"], "when": "args.n > 1"}]},
        "rules: another order, or rules put before others",
    ),
    "rule allows": (
        {
            "rules": [
                {"effect": "deny", "tools": ["delete_*"], "when": "args.n > 1"},
                {},
                {"effect": "allow", "tools": ["read_*"]},
            ]
        },
        "rules: allow for 'read_*' added",
    ),
}


@pytest.mark.parametrize("case", APPROVAL)
def test_each_loosening_of_approval_is_named(case: str):
    policy: Any = SERVER["approval_policy"]
    change, words = APPROVAL[case]
    before = server("fs", **SERVER)
    after = server("fs", **(SERVER | {"approval_policy": policy | change}))
    assert loosened(before, after) == (f"approval_policy.{words}",)


def test_a_name_of_its_own_that_overrides_a_stricter_pattern_is_named():
    before = {"per_tool": {"wr*": "always"}}
    after = {"per_tool": {"wr*": "always", "write": "policy"}}
    pair = (server("fs", approval_policy=policy) for policy in (before, after))
    assert loosened(*pair) == ("approval_policy.per_tool.write: 'policy' added",)


TASK: dict[str, Any] = {
    "default_server_ids": ["a"],
    "allowed_server_ids": ["a", "b"],
    "server_tags": ["scm"],
    "tool_allowlist": ["read_*"],
    "tool_denylist": ["delete_*"],
    "read_only": True,
    "max_tools": 5,
    "max_iterations": 3,
    "profile": "p",
    "profile_overrides": {"tool_denylist": ["x"]},
}
TASKS: dict[str, tuple[dict[str, Any], str]] = {
    "defaults": (
        {"default_server_ids": ["a", "b"]},
        "mcp.default_server_ids: 'b' may be used now",
    ),
    "ceiling": (
        {"allowed_server_ids": ["a", "b", "c"]},
        "mcp.allowed_server_ids: 'c' may be used now",
    ),
    "allowlist": ({"tool_allowlist": ["read_*", "b/*"]}, "mcp.tool_allowlist: 'b/*' allowed now"),
    "no allowlist": ({"tool_allowlist": None}, "mcp.tool_allowlist: removed"),
    "denylist": ({"tool_denylist": ["delete_all"]}, "'delete_*' not denied any more"),
    "writing": ({"read_only": False}, "mcp.read_only: turned off"),
    "more tools": ({"max_tools": 6}, "mcp.max_tools: 5 became 6"),
    "turns": ({"max_iterations": 4}, "mcp.max_iterations: 3 became 4"),
    "no bound": ({"max_iterations": None}, "mcp.max_iterations: 3 became none"),
    "profile": ({"profile": "q"}, "mcp.profile: 'p' became 'q'"),
    "no profile": ({"profile": None}, "mcp.profile: 'p' became None"),
    "overrides": (
        {"profile_overrides": {}},
        "mcp.profile_overrides.tool_denylist: 'x' not denied any more",
    ),
    "no overrides": ({"profile_overrides": None}, "mcp.profile_overrides: removed"),
}


@pytest.mark.requirement("audit:policy-loosened")
@pytest.mark.parametrize("case", TASKS)
def test_each_field_of_a_task_that_allows_more_is_named_by_its_path(case: str):
    change, words = TASKS[case]
    [said] = loosened(task(**TASK), task(**(TASK | change)))
    assert said.endswith(words)


def test_tags_that_are_dropped_no_longer_narrow_the_servers_that_are_named():
    said = loosened(task(**TASK), task(**(TASK | {"server_tags": None})))
    assert len(said) == 2
    assert all("other servers may be used now" in line for line in said)


NARROWER: dict[str, tuple[Any, Any]] = {
    "fewer tools": (server("a"), server("a", allowed_tools=["read"])),
    "part of a pattern": (
        server("a", allowed_tools=["read_*"]),
        server("a", allowed_tools=["read_a*", "read_b"]),
    ),
    "off": (server("a"), server("a", enabled=False)),
    "less time": (
        server("a"),
        server("a", budgets={"tool_timeout_ms": 10, "max_concurrency": 1}),
    ),
    "a rule at the end": (
        server("a"),
        server("a", approval_policy={"rules": [{"effect": "deny"}, {}]}),
    ),
    "a stricter tool": (
        server("a", approval_policy={"per_tool": {"x": "never"}}),
        server("a", approval_policy={"per_tool": {"x": "policy", "y*": "always"}}),
    ),
    "a name": (server("a"), server("a", display_name="A", prewarm=True)),
    "a ceiling": (platform(), platform(ceilings={"tool_timeout_ms": 10})),
    "a denial": (platform(), platform(tool_denylist=["x"], default_approval="always")),
    "an allowlist": (task(), task(tool_allowlist=["*"], read_only=True, max_iterations=3)),
    "a ceiling within the defaults": (
        task(default_server_ids=["a", "b"]),
        task(default_server_ids=["a"], allowed_server_ids=["a"]),
    ),
    "a profile beside own servers": (
        task(default_server_ids=["a"]),
        task(default_server_ids=["a"], profile="p", profile_overrides={"read_only": True}),
    ),
    "an environment": (
        profile("p", default_server_ids=["a"]),
        profile("p", default_server_ids=["a"], environments={"prod": {"read_only": True}}),
    ),
    "gone": (server("a"), None),
    "a task gone": (task(), None),
    "off from the start": (None, server("a", enabled=False)),
    "without tools": (None, server("a", allowed_tools=[])),
    "a task that is off": (None, convert({"task_id": "t"}, TaskRecord)),
    "a backend": (None, convert({"name": "b", "base_url": "https://x"}, BackendRecord)),
}


@pytest.mark.parametrize("case", NARROWER)
def test_what_only_narrows_is_not_named(case: str):
    assert loosened(*NARROWER[case]) == ()


WIDER: dict[str, tuple[Any, Any, str]] = {
    "a server": (None, server("a", allowed_tools=["read", "b"]), "new: allows 'read', 'b'"),
    "a task": (None, task(), "new: its sessions may use what it selects"),
    "a profile": (None, profile("p"), "new: tasks that name it may use what it selects"),
    "a platform that is gone": (
        platform(tool_denylist=["x"]),
        None,
        "tool_denylist: 'x' not denied any more",
    ),
    "a first platform": (None, platform(rules=[{"effect": "allow"}]), "rules: allow for '*' added"),
    "no ceiling": (
        platform(ceilings={"max_concurrency": 3}),
        platform(),
        "ceilings.max_concurrency: 3 became none",
    ),
    "a profile that chooses": (
        task(),
        task(profile="p"),
        "mcp.profile: None became 'p'",
    ),
    "an environment that chooses": (
        profile("p"),
        profile("p", environments={"prod": {"default_server_ids": ["a"]}}),
        "environments.prod: added, and may choose servers",
    ),
    "an environment gone": (
        profile("p", environments={"prod": {"read_only": True}}),
        profile("p"),
        "environments.prod: removed",
    ),
    "another program": (
        task(),
        convert(
            {"task_id": "t", "mcp": {"enabled": True}, "executable": {"path": "x"}}, TaskRecord
        ),
        "executable: the task runs something else",
    ),
}


@pytest.mark.requirement("audit:policy-loosened")
@pytest.mark.parametrize("case", WIDER)
def test_what_is_new_or_gone_and_allows_more_is_named(case: str):
    before, after, words = WIDER[case]
    assert loosened(before, after) == (words,)


def test_many_changes_are_counted_and_many_patterns_too():
    names = [f"tool_{number}" for number in range(500)]
    [said] = loosened(server("a", allowed_tools=["x"]), server("a", allowed_tools=names))
    assert said.endswith("and 495 more allowed now")
    modes = dict.fromkeys(names, "never")
    strict = server("a", approval_policy={"default": "always"})
    said = loosened(strict, server("a", approval_policy={"default": "always", "per_tool": modes}))
    assert len(said) == MAX_LINES + 1
    assert said[-1] == f"and {500 - MAX_LINES} more"


def user(**fields: Any) -> UserRecord:
    return convert({"user_id": "u"} | fields, UserRecord)


USER: dict[str, Any] = {
    "enabled": False,
    "enabled_server_ids": ["a"],
    "tool_allowlist": ["read_*"],
    "tool_denylist": ["x"],
    "read_only": True,
    "groups": ["g"],
    "own": {"tool_denylist": ["y"], "enabled_server_ids": []},
}
WIDER_USERS: dict[str, tuple[dict[str, Any], str]] = {
    "on": ({"enabled": True}, "enabled: turned on"),
    "servers": (
        {"enabled_server_ids": ["a", "b"]},
        "enabled_server_ids: 'b' may be used now",
    ),
    "all servers": ({"enabled_server_ids": None}, "enabled_server_ids: removed"),
    "tools": ({"tool_allowlist": ["read_*", "w"]}, "tool_allowlist: 'w' allowed now"),
    "all tools": ({"tool_allowlist": None}, "tool_allowlist: removed"),
    "not denied": ({"tool_denylist": []}, "tool_denylist: 'x' not denied any more"),
    "writing": ({"read_only": False}, "read_only: turned off"),
    "a group": ({"groups": ["g", "h"]}, "groups: 'h' added"),
    "a group left": ({"groups": []}, "groups: 'g' removed"),
    "a choice taken back": (
        {"own": {"tool_denylist": [], "enabled_server_ids": []}},
        "own.tool_denylist: 'y' not denied any more",
    ),
}


@pytest.mark.requirement("people:loosening")
@pytest.mark.parametrize(("change", "said"), WIDER_USERS.values(), ids=WIDER_USERS.keys())
def test_what_a_person_may_do_more_is_named(change: dict[str, Any], said: str):
    assert loosened(user(**USER), user(**USER | change)) == (said,)
    assert said not in loosened(user(**USER | change), user(**USER))


@pytest.mark.requirement("people:loosening")
def test_a_person_who_comes_is_named_and_who_goes_only_where_the_record_narrowed():
    assert loosened(None, user()) == ("new: the person may use what tasks allow",)
    assert loosened(None, user(enabled=False)) == ()
    assert loosened(user(), None) == ()
    for record in (user(enabled=False), user(read_only=True), user(own={"tool_allowlist": []})):
        [line] = loosened(record, None)
        assert line.startswith("removed: does not narrow the person any more")


@pytest.mark.requirement("people:loosening")
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({}, {"users": "open"}, "mcp.users: 'records' became 'open'"),
        ({}, {"user_from_request": True}, "mcp.user_from_request: turned on"),
        ({"allowed_groups": ["a"]}, {}, "mcp.allowed_groups: removed"),
        (
            {"allowed_groups": []},
            {"allowed_groups": ["b"]},
            "mcp.allowed_groups: 'b' may use it now",
        ),
    ],
)
def test_a_task_that_lets_in_more_people_is_named(
    old: dict[str, Any], new: dict[str, Any], said: str
):
    assert loosened(task(**old), task(**new)) == (said,)
    assert loosened(task(**new), task(**old)) == ()
