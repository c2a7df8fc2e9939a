"""The edit that would lift a denial: as a command to type, and in words.

Both are told from the registry's records as policy sees them. A command is without the program's
name, which differs from place to place.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence

from bascule.model.json import JsonObject
from bascule.model.pattern import Pattern
from bascule.model.person import PERSON_PATTERN
from bascule.model.snapshot import Snapshot
from bascule.model.task import Selection
from bascule.model.user import UserRecord
from bascule.policy.characters import render_safe

#: A longer command, one that repeats a long list, is nothing to read beside each of many tools.
_LONGEST = 512
_SECRET = re.compile(r"\bsecret (?:named )?'([^']+)'")
#: A person as a refusal or a rule names them, and whether the rule is of their own choice.
_PERSON = re.compile(rf"\buser '?({PERSON_PATTERN.strip('^$')})'?( own )?", re.ASCII)
#: Where a list of the task layer stands: a profile, perhaps its entry for an environment.
_PROFILE = re.compile(r"profile (\S+)( in .+)? (?:tool_|\w+_server_ids)")
_OF_PEOPLE = frozenset(
    {
        "unknown_user",
        "user_disabled",
        "group_not_allowed",
        "user_not_enabled",
        "user_not_allowlisted",
        "user_denied",
        "user_read_only",
    }
)
_OF_LISTS = frozenset({"task_not_allowlisted", "task_denied", "not_allowed", "not_default"})


def edit_of(snapshot: Snapshot, decision: JsonObject, task: str, *, draft: bool = False) -> str:
    """Return what would lift a denial, in words with the command where there is one.

    What a draft of a task denies is lifted in the draft.
    """
    words = in_words(decision)
    reason, rule = decision.get("reason"), str(decision.get("rule"))
    in_draft = draft and rule.startswith(("task", "mcp.")) and reason != "task_read_only"
    command = "" if in_draft else lifting(snapshot, decision, task)
    told = f"bascule {command}" if 0 < len(command) <= _LONGEST else ""
    return ": ".join(filter(None, (words, told)))


def lifting(snapshot: Snapshot, decision: JsonObject, task: str) -> str:
    """Return the command that would lift a denial; none where no single one would."""
    server, tool = str(decision.get("server")), str(decision.get("tool") or "*")
    reason, quoted = str(decision.get("reason")), shlex.quote(task)
    if reason in _OF_PEOPLE:
        return admitting(snapshot, decision, task)
    record = snapshot.servers.get(server)
    if record is None:
        return ""
    secret = secret_in(str(decision.get("rule")))
    if reason in ("secret_unbound", "env_missing"):
        return "" if secret is None else binding(secret, server, unset=reason == "env_missing")
    if reason in _OF_LISTS:
        return _listing(snapshot, decision, task)
    return {
        "server_disabled": f"servers enable {server}",
        "deny_all": f"servers allow {server} {shlex.quote(tool)}",
        "not_in_allowed_tools": f"servers allow {server} {shlex.quote(tool)}",
        "platform_denied": _off_the_denylist(snapshot, server, tool),
        "task_disabled": f"tasks set {quoted} mcp.enabled=true",
        "task_read_only": _set(f"servers set {server} effects.read", record.effects.read, tool),
    }.get(reason, "")


def _listing(snapshot: Snapshot, decision: JsonObject, task: str) -> str:
    """Return how a list of the task layer, of the task or of its profile, is changed."""
    server, tool = str(decision.get("server")), str(decision.get("tool") or "*")
    reason, rule = str(decision.get("reason")), str(decision.get("rule"))
    if reason in ("not_allowed", "not_default") and not _PROFILE.match(rule):
        return f"tasks use {shlex.quote(task)} {server}"
    field, found = _selection(snapshot, rule, task)
    match reason:
        case _ if found is None:
            return ""
        case "not_allowed":
            return _set(f"{field}allowed_server_ids", found.allowed_server_ids or (), server)
        case "not_default":
            return _set(f"{field}default_server_ids", found.default_server_ids or (), server)
        case "task_denied":
            return _set(f"{field}tool_denylist", _uncovered(found.tool_denylist, server, tool))
        case _:
            allowed = found.tool_allowlist
            return "" if allowed is None else _set(f"{field}tool_allowlist", allowed, tool)


def _selection(snapshot: Snapshot, rule: str, task: str) -> tuple[str, Selection | None]:
    """Return whose list a rule means, and how a command to set a field of it begins."""
    profile = _PROFILE.match(rule)
    if profile is not None:
        found = None if profile[2] else snapshot.profiles.get(profile[1])
        return f"profiles set {profile[1]} ", found
    own = task in snapshot.tasks and "profile_overrides" not in rule
    return f"tasks set {shlex.quote(task)} mcp.", snapshot.tasks[task].mcp if own else None


def _uncovered(patterns: Sequence[str], server: str, tool: str) -> list[str]:
    return [one for one in patterns if not Pattern.parse(one).matches(server, tool)]


def admitting(snapshot: Snapshot | None, decision: JsonObject, task: str) -> str:
    """Return the command that would lift a denial of the layer of people.

    Without the registry, which not everybody may read, only what can be told from the denial. What
    people chose for themselves is theirs to lift.
    """
    reason, rule = str(decision.get("reason")), str(decision.get("rule"))
    named = _PERSON.search(rule)
    if named is None:
        return "" if snapshot is None else _speaking(snapshot, reason, task)
    person = named[1]
    without = {
        "unknown_user": f"users add {person}",
        "user_disabled": f"users enable {person}",
        "user_read_only": f"users set {person} read_only=false",
    }
    if named[2]:
        return ""
    if reason in without:
        return without[reason]
    record = None if snapshot is None else snapshot.users.get(person)
    return "" if snapshot is None or record is None else _widening(snapshot, record, decision, task)


def _speaking(snapshot: Snapshot, reason: str, task: str) -> str:
    """Return how somebody gets a token for a task that is for groups of people."""
    groups = snapshot.tasks[task].mcp.allowed_groups if task in snapshot.tasks else None
    if reason != "group_not_allowed" or not groups:
        return ""
    ids = (id for id, one in snapshot.users.items() if one.enabled and set(groups) & {*one.groups})
    person = next(ids, None)
    quoted = shlex.quote(task)
    return "" if person is None else f"tokens create --role client --task {quoted} --user {person}"


def _widening(snapshot: Snapshot, record: UserRecord, decision: JsonObject, task: str) -> str:
    server, tool = str(decision.get("server")), str(decision.get("tool") or "*")
    field = f"users set {record.user_id}"
    match str(decision.get("reason")):
        case "group_not_allowed" if task in snapshot.tasks:
            groups = snapshot.tasks[task].mcp.allowed_groups or ()
            return _set(f"{field} groups", record.groups, groups[0]) if groups else ""
        case "user_not_enabled":
            return _set(f"{field} enabled_server_ids", record.enabled_server_ids or (), server)
        case "user_not_allowlisted":
            return _set(f"{field} tool_allowlist", record.tool_allowlist or (), tool)
        case "user_denied":
            kept = _uncovered(record.tool_denylist, server, tool)
            return _set(f"{field} tool_denylist", kept)
        case _:
            return ""


def binding(name: str, server: str, *, unset: bool) -> str:
    """Return the command that has a server given a secret."""
    quoted = shlex.quote(name)
    return f"secrets {f'set {quoted} --bind' if unset else f'bind {quoted} --server'} {server}"


def secret_in(problem: str) -> str | None:
    """Return the secret that a problem of a server is about."""
    found = _SECRET.search(problem)
    return None if found is None else found[1]


def _off_the_denylist(snapshot: Snapshot, server: str, tool: str) -> str:
    named = f"{server}/{tool}" in snapshot.platform.tool_denylist
    return f"servers allow {server} {shlex.quote(tool)}" if named else ""


def _set(field: str, present: Sequence[str], *more: str) -> str:
    command, _, name = field.rpartition(" ")
    value = json.dumps([*dict.fromkeys((*present, *more))])
    return f"{command} {shlex.quote(f'{name}={value}')}"


def in_words(decision: JsonObject) -> str:
    """Return what would lift a denial in the records or in the session, in words."""
    server, tool = _told(decision, "server"), _told(decision, "tool")
    reason, rule = str(decision.get("reason")), str(decision.get("rule"))
    return _WORDS.get(reason, "").format(server=server, tool=tool, whose=_whose(rule))


def _told(decision: JsonObject, name: str) -> str:
    return render_safe(" ".join(str(decision.get(name) or "*").split()), one_line=True)


def _whose(rule: str) -> str:
    """Return in words whose list a rule of the task layer is."""
    profile = _PROFILE.match(rule)
    return "the task" if profile is None else f"profile {profile[1]}{profile[2] or ''}"


_OUT = "take what covers {tool} out of tool_denylist of"
_IN = 'add "{tool}" to tool_allowlist of'
_CLASS = 'if it only reads: add "{tool}" to effects.read of {server}'
_WORDS = {
    "unknown_server": "add a server {server}, or take its name out",
    "server_disabled": "the record of {server} says enabled = false",
    "deny_all": 'add "{tool}" to allowed_tools in the record of {server}',
    "not_in_allowed_tools": 'add "{tool}" to allowed_tools in the record of {server}',
    "platform_denied": f"{_OUT} the platform record",
    "name_collision": "give one of the two servers another tool_namespace",
    "task_disabled": "set mcp.enabled = true in the task",
    "unknown_profile": "name a profile that exists as mcp.profile of the task",
    "not_allowed": 'add "{server}" to default_server_ids of {whose}',
    "not_default": 'add "{server}" to default_server_ids of {whose}',
    "task_not_allowlisted": f"{_IN} {{whose}}",
    "task_denied": f"{_OUT} {{whose}}",
    "task_read_only": _CLASS,
    "over_max_tools": "raise mcp.max_tools of the task, or choose with mcp.tool_allowlist",
    "unknown_user": "add the person as a user",
    "user_disabled": "the person's record says enabled = false",
    "group_not_allowed": "put the person into a group that the task is for",
    "user_not_enabled": 'add "{server}" to enabled_server_ids of the person',
    "user_not_allowlisted": f"{_IN} the person",
    "user_denied": f"{_OUT} the person",
    "user_read_only": "the person's record says read_only = true",
    "session_disabled": "let the session leave MCP on",
    "not_requested": 'add "{server}" to server_ids of the session',
    "session_not_allowlisted": f"{_IN} the session",
    "session_denied": f"{_OUT} the session",
    "session_read_only": _CLASS,
}
