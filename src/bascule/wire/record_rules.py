"""What a record's fields must be to one another; what no single field's type can say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from bascule.errors import InvalidRecord
from bascule.model.backend import BackendRecord
from bascule.model.condition import Condition, ConditionError
from bascule.model.pattern import pattern_problem
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.reference import (
    Stored,
    Template,
    looks_like_a_credential,
    names_a_credential,
    parse_reference,
    parse_stored,
    parse_template,
    parse_value,
)
from bascule.model.server import ApprovalRule, Auth, Http, ServerRecord, Stdio
from bascule.model.session import SessionRequest
from bascule.model.task import Selection, TaskRecord
from bascule.model.user import UserFilters, UserRecord
from bascule.wire.collector import Findings
from bascule.wire.sandbox_rules import check_floor, check_sandbox

_URL = re.compile(r"(https?)://(\[[0-9a-fA-F:.]+\]|[^/?#:@\s]+)(:\d{1,5})?([/?#]\S*)?")
_LOOPBACK = re.compile(r"localhost|\[::1\]|127(?:\.\d{1,3}){3}")
_MODEL_NAMES = ("mcp__", "mcp.")
#: What Bascule's own tools are called by.
_OWN_NAME = "bascule"
T = TypeVar("T")
_IN_PROCESS_LIST = "it shows in the process list or in logs; use env, headers or auth_ref"


def check_server(record: ServerRecord, findings: Findings) -> None:
    """Check a server record as a whole."""
    _check_names(record, findings)
    section = "stdio" if record.transport == "stdio" else "http"
    other = "http" if section == "stdio" else "stdio"
    if getattr(record, section) is None:
        findings.problem(section, f"is required by transport {record.transport!r}")
    if getattr(record, other) is not None:
        findings.advise(other, f"is not used by transport {record.transport!r}")
    if record.stdio is not None:
        _check_stdio(record.stdio, findings)
    if record.http is not None:
        _check_http(record.http, findings)
    check_sandbox(record, findings)
    _check_server_patterns(record, findings)
    _check_rules(record.approval_policy.rules, "approval_policy.rules", findings)


def _check_names(record: ServerRecord, findings: Findings) -> None:
    """Check that no server can pass for Bascule itself, whose own tools stand beside its tools."""
    if record.server_id == _OWN_NAME:
        findings.refuse(
            "server_id",
            f"{_OWN_NAME!r} is the name of Bascule itself; call the server something else",
        )
    if record.tool_namespace.casefold().partition(".")[0] == _OWN_NAME:
        findings.refuse(
            "tool_namespace",
            f"{record.tool_namespace!r} is where Bascule's own tools are; leave it out "
            "to have 'mcp.' and the server's id, or give another one",
        )


def _check_server_patterns(record: ServerRecord, findings: Findings) -> None:
    lists = {
        "allowed_tools": record.allowed_tools,
        "effects.read": record.effects.read,
        "effects.idempotent": record.effects.idempotent,
        "approval_policy.per_tool": tuple(record.approval_policy.per_tool),
    }
    for path, patterns in lists.items():
        check_patterns(patterns, path, findings)
        for pattern in patterns:
            server, slash, _ = pattern.partition("/")
            if slash and server != record.server_id and "server_id" not in findings.broken:
                findings.advise(path, f"{pattern!r} names another server and can never match")


def _check_stdio(stdio: Stdio, findings: Findings) -> None:
    _check_visible(stdio.command, "stdio.command", findings)
    for index, arg in enumerate(stdio.args):
        _check_visible(arg, f"stdio.args[{index}]", findings)
    for name, value in stdio.env.items():
        _check_value(value, f"stdio.env.{name}", findings)
        if name in stdio.env_from:
            findings.advise(f"stdio.env.{name}", "is in env_from too; the value in env counts")


def _check_http(http: Http, findings: Findings) -> None:
    _check_visible(http.url, "http.url", findings)
    _check_url(http.url, "http.url", findings, insecure=http.insecure)
    for name, value in http.headers.items():
        _check_value(value, f"http.headers.{name}", findings)
        if "\n" in value or "\r" in value:
            findings.problem(f"http.headers.{name}", "must be one line")
    if http.auth_ref is not None:
        _check_value(http.auth_ref, "http.auth_ref", findings, parse_reference)
    if http.auth_ref is not None and http.auth is not None:
        findings.problem("http.auth_ref", "is given together with http.auth; keep one of them")
    if http.auth is not None:
        _check_auth(http.auth, findings)
    if http.tls is not None and (http.tls.client_certificate is None) != (
        http.tls.client_key is None
    ):
        findings.problem("http.tls", "client_certificate and client_key go together")


def _check_auth(auth: Auth, findings: Findings) -> None:
    _check_value(auth.ref, "http.auth.ref", findings, parse_reference)
    needs: Mapping[str, tuple[str, ...]] = {
        "bearer": (),
        "header": ("header",),
        "oauth_client_credentials": ("token_url", "client_id"),
    }
    for field in needs[auth.type]:
        if getattr(auth, field) is None:
            findings.problem(f"http.auth.{field}", f"is required by type {auth.type!r}")
    if auth.token_url is not None:
        _check_url(auth.token_url, "http.auth.token_url", findings, insecure=False)


def _check_url(url: str, path: str, findings: Findings, *, insecure: bool) -> None:
    if "${" in url:
        return  # known only when it is resolved; the node checks it then
    parts = _URL.fullmatch(url)
    if parts is None:
        findings.problem(path, "must be a URL such as https://host/path")
        return
    local = _LOOPBACK.fullmatch(parts[2]) is not None
    if parts[1] == "http" and not local and not insecure:
        findings.advise(path, "is plain http to another machine, which needs insecure = true")


def _check_visible(text: str, path: str, findings: Findings) -> None:
    """Check a value that other users of the machine can see (command, args, url)."""
    stored = parse_stored(text)
    if stored is not None:
        findings.problem(path, f"must not be {stored.scheme}://…: {_IN_PROCESS_LIST}")
        return
    template = _parsed(text, path, findings, parse_template)
    for name in _credential_names(text) if template is not None else ():
        findings.advise(path, f"${{{name}}} looks like a credential: {_IN_PROCESS_LIST}")
    if looks_like_a_credential(text):
        findings.advise(path, f"looks as if it held a credential: {_IN_PROCESS_LIST}")


def visible_credentials(record: ServerRecord | BackendRecord) -> dict[str, list[str]]:
    """Return the references to credentials that anybody on the machine can see, by their text."""
    return {
        text: [f"{path}: ${{{name}}} looks like a credential: {_IN_PROCESS_LIST}" for name in names]
        for path, text in _visible(record)
        if (names := _credential_names(text))
    }


def _visible(record: ServerRecord | BackendRecord) -> Iterator[tuple[str, str]]:
    if isinstance(record, BackendRecord):
        yield "base_url", record.base_url
        return
    if record.stdio is not None:
        yield "stdio.command", record.stdio.command
        yield from ((f"stdio.args[{i}]", arg) for i, arg in enumerate(record.stdio.args))
    if record.http is not None:
        yield "http.url", record.http.url


def _credential_names(text: str) -> list[str]:
    try:
        variables = parse_template(text).variables
    except ValueError:
        return []
    return [variable.name for variable in variables if names_a_credential(variable.name)]


def refuse_visible_credentials(new: object, old: object) -> None:
    """Raise InvalidRecord where a record puts a credential, by reference, where all can see it.

    For records that others write; what the old record has already may stay.
    """
    if not isinstance(new, ServerRecord | BackendRecord):
        return
    known = visible_credentials(old) if isinstance(old, ServerRecord | BackendRecord) else {}
    added = [
        problem
        for text, problems in visible_credentials(new).items()
        if text not in known
        for problem in problems
    ]
    if added:
        raise InvalidRecord(added)


def _check_value(
    text: str,
    path: str,
    findings: Findings,
    parse: Callable[[str], Template | Stored] = parse_value,
) -> None:
    value = _parsed(text, path, findings, parse)
    if isinstance(value, Stored) and not value.target:
        findings.problem(path, f"{value.scheme}:// names nothing")


def _parsed(text: str, path: str, findings: Findings, parse: Callable[[str], T]) -> T | None:
    try:
        return parse(text)
    except ValueError as error:
        findings.problem(path, str(error))
        return None


def check_patterns(patterns: Iterable[str], path: str, findings: Findings) -> None:
    """Check that every pattern of a list means something."""
    for index, pattern in enumerate(patterns):
        problem = pattern_problem(pattern)
        if problem:
            findings.problem(f"{path}[{index}]", problem)
        elif pattern.startswith(_MODEL_NAMES):
            findings.refuse(
                f"{path}[{index}]",
                f"{pattern!r} looks like a name that models use; a pattern covers a tool's own "
                "name: write 'delete_*', or 'server/delete_*' for one server",
                tolerated=pattern in findings.familiar,
            )


def _check_rules(rules: tuple[ApprovalRule, ...], path: str, findings: Findings) -> None:
    for index, rule in enumerate(rules):
        check_patterns(rule.tools, f"{path}[{index}].tools", findings)
        if rule.when is None:
            continue
        try:
            Condition.parse(rule.when)
        except ConditionError as error:
            findings.problem(f"{path}[{index}].when", str(error))


def check_selection(
    selection: Selection | SessionRequest | UserFilters, path: str, findings: Findings
) -> None:
    """Check the tool patterns of a task, a profile, an override, a person or a session."""
    prefix = f"{path}." if path else ""
    check_patterns(selection.tool_allowlist or (), f"{prefix}tool_allowlist", findings)
    check_patterns(selection.tool_denylist, f"{prefix}tool_denylist", findings)


def refuse_bad_patterns(selection: Selection | SessionRequest) -> None:
    """Raise InvalidRecord where a selection made in code has a pattern that means nothing."""
    findings = Findings()
    check_selection(selection, "", findings)
    if findings.problems:
        raise InvalidRecord(findings.problems)


def check_task(record: TaskRecord, findings: Findings) -> None:
    """Check a task record as a whole."""
    check_selection(record.mcp, "mcp", findings)
    if record.mcp.profile_overrides is not None:
        check_selection(record.mcp.profile_overrides, "mcp.profile_overrides", findings)
        if record.mcp.profile is None:
            findings.advise("mcp.profile_overrides", "has no profile to override")


def check_profile(record: ProfileRecord, findings: Findings) -> None:
    """Check a profile as a whole."""
    check_selection(record, "", findings)
    for name, selection in record.environments.items():
        check_selection(selection, f"environments.{name}", findings)


def check_platform(record: PlatformRecord, findings: Findings) -> None:
    """Check the platform record as a whole."""
    check_patterns(record.tool_denylist, "tool_denylist", findings)
    _check_rules(record.rules, "rules", findings)
    check_floor(record.sandbox, findings)


def check_backend(record: BackendRecord, findings: Findings) -> None:
    """Check a backend as a whole."""
    _check_visible(record.base_url, "base_url", findings)
    _check_url(record.base_url, "base_url", findings, insecure=record.insecure)
    if record.key_ref is not None:
        _check_value(record.key_ref, "key_ref", findings, parse_reference)
    for name, value in record.headers.items():
        _check_value(value, f"headers.{name}", findings)


def check_user(record: UserRecord, findings: Findings) -> None:
    """Check a user as a whole."""
    check_selection(record, "", findings)
    if record.own is not None:
        check_selection(record.own, "own", findings)


def namespace_conflicts(servers: Iterable[ServerRecord]) -> list[str]:
    """Return what is wrong between records: one tool namespace claimed by two servers."""
    owners: dict[str, str] = {}
    conflicts: list[str] = []
    for server in sorted(servers, key=lambda record: record.server_id):
        owner = owners.setdefault(server.tool_namespace.casefold(), server.server_id)
        if owner != server.server_id:
            conflicts.append(
                f"{server.server_id}.tool_namespace: {server.tool_namespace!r} is already the "
                f"namespace of server {owner!r}"
            )
    return conflicts
