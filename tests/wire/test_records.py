"""Records in and out: forms, spellings, and a validator that says everything at once."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from bascule.errors import InvalidRecord
from bascule.model.backend import BackendRecord
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import Auth, RedactKeys, ServerRecord, Stdio
from bascule.model.task import TaskRecord
from bascule.wire.records import decode, dump, encode, parse
from tests.wire.full_records import (
    BACKEND,
    FULL,
    LOCAL,
    PLATFORM,
    PROFILE,
    REMOTE,
    SEED_RECORD,
    TASK,
)

STDIO: dict[str, Any] = {"server_id": "fs", "transport": "stdio", "stdio": {"command": "uvx"}}
HTTP: dict[str, Any] = {
    "server_id": "fs",
    "transport": "streamable_http",
    "http": {"url": "https://example.org/mcp"},
}


def read(plain: dict[str, Any], **more: Any) -> ServerRecord:
    return decode(ServerRecord, plain | more)[0]


def problems(plain: dict[str, Any], cls: Any = ServerRecord, *, strict: bool = False) -> list[str]:
    with pytest.raises(InvalidRecord) as refused:
        decode(cls, plain, strict=strict)
    return list(refused.value.problems)


def warnings(plain: dict[str, Any], cls: Any = ServerRecord) -> list[str]:
    return list(decode(cls, plain)[1])


@pytest.mark.requirement("record:seed-example:fs", "record:display-name")
def test_the_filesystem_record_of_the_seed_is_read_with_its_meaning():
    record, said = decode(ServerRecord, parse(SEED_RECORD.encode(), "toml"), strict=True)
    assert said == ()
    assert (record.version, record.server_id, record.display_name) == (1, "fs", "Filesystem")
    assert (record.transport, record.tool_namespace) == ("stdio", "mcp.fs")
    assert record.allowed_tools == ("read_*", "search_*")
    assert record.stdio == Stdio(command="uvx", args=("xxx@latest",))
    budgets = record.budgets
    assert (budgets.tool_timeout_ms, budgets.max_concurrency) == (8000, 8)
    assert budgets.max_tool_output_bytes == 65536


@pytest.mark.requirement("record:formats:json-toml-dict", "record:formats:round-trip")
@pytest.mark.parametrize("kind", FULL)
def test_a_full_record_survives_every_format_field_by_field(kind: str):
    cls, plain = FULL[kind]
    record, said = decode(cls, plain)
    assert not any("unknown" in line for line in said)
    assert msgspec.json.decode(msgspec.json.encode(encode(record))) == plain
    forms: tuple[Literal["json", "toml"], ...] = ("json", "toml")
    for form in forms:
        assert decode(cls, parse(dump(record, form).encode(), form))[0] == record


@pytest.mark.requirement("record:version")
@pytest.mark.parametrize("version", [0, 2, "1", True, 1.0, None, [1]])
@pytest.mark.parametrize("kind", FULL)
def test_any_version_but_one_is_refused(kind: str, version: object):
    cls, plain = FULL[kind]
    (problem,) = problems(plain | {"version": version}, cls)
    assert problem.startswith("version: ")


@pytest.mark.requirement("record:version:absent")
def test_a_record_without_a_version_is_read_as_version_one_and_written_with_it():
    assert read(STDIO).version == 1
    assert next(iter(encode(read(STDIO)).items())) == ("version", 1)
    assert dump(read(STDIO), "toml").startswith("version = 1\n")


@pytest.mark.requirement("record:server-id:charset")
@pytest.mark.parametrize("server_id", ["a", "fs", "a-b_c9", "a" * 32, "duckduckgo-search", "a_"])
def test_a_good_server_id_is_accepted(server_id: str):
    assert read(STDIO, server_id=server_id).server_id == server_id


@pytest.mark.requirement("record:server-id:charset")
@pytest.mark.parametrize("bad", ["", "A", "1a", "_a", "-a", "a.b", "a b", "é", "a" * 33, "a\n", 7])
def test_a_bad_server_id_is_refused(bad: object):
    (problem,) = problems(STDIO | {"server_id": bad})
    assert problem.startswith("server_id: ")


@pytest.mark.requirement("record:server-id:no-double-underscore")
@pytest.mark.parametrize("bad", ["a__b", "a__", "ab__cd"])
def test_a_server_id_with_a_double_underscore_is_refused(bad: str):
    (problem,) = problems(STDIO | {"server_id": bad})
    assert problem.startswith("server_id: ")
    assert "'__'" in problem


@pytest.mark.requirement("record:server-id:required")
def test_a_record_without_a_server_id_is_refused():
    assert problems({"transport": "stdio", "stdio": {"command": "x"}}) == ["server_id: is required"]


def test_a_missing_server_id_does_not_raise_questions_about_other_fields():
    plain = {"transport": "stdio", "stdio": {"command": "x"}, "allowed_tools": ["fs/read"]}
    assert problems(plain, strict=True) == ["server_id: is required"]


@pytest.mark.requirement("record:transport:spellings", "record:transport:legacy-sse")
@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        ("streamable_http", "streamable_http"),
        ("streamable-http", "streamable_http"),
        ("http", "streamable_http"),
        ("http_sse_legacy", "http_sse_legacy"),
        ("sse", "http_sse_legacy"),
    ],
)
def test_every_spelling_of_a_remote_transport_is_read_and_one_is_written(
    spelling: str, canonical: str
):
    record = read(HTTP, transport=spelling)
    assert record.transport == canonical
    assert encode(record)["transport"] == canonical


@pytest.mark.parametrize("bad", ["", "STDIO", "websocket", "Http", None, 1])
def test_another_transport_is_refused_with_the_choices(bad: object):
    (problem,) = problems(STDIO | {"transport": bad})
    assert problem.startswith("transport: ")
    assert "http_sse_legacy, stdio, streamable_http" in problem


@pytest.mark.requirement("record:transport:stdio", "record:transport:mismatch")
def test_a_transport_needs_its_table_with_what_is_required_in_it():
    assert problems({"server_id": "fs", "transport": "stdio"}) == [
        "stdio: is required by transport 'stdio'"
    ]
    assert problems(HTTP | {"transport": "stdio"}) == ["stdio: is required by transport 'stdio'"]
    assert problems(STDIO | {"transport": "sse"}) == [
        "http: is required by transport 'http_sse_legacy'"
    ]
    assert problems(STDIO | {"stdio": {}}) == ["stdio.command: is required"]
    assert problems(STDIO | {"stdio": {"command": ""}}) == ["stdio.command: must not be empty"]


@pytest.mark.requirement("record:transport:mismatch")
def test_a_table_that_the_transport_does_not_use_is_reported():
    both = STDIO | {"http": HTTP["http"]}
    assert warnings(both) == ["http: is not used by transport 'stdio'"]
    assert problems(both, strict=True) == ["http: is not used by transport 'stdio'"]


@pytest.mark.requirement("record:stdio:command-args-env-cwd", "record:http:url-headers-auth-ref")
def test_connections_are_kept_as_they_were_given():
    local, remote = read(LOCAL), read(HTTP, http=HTTP["http"] | {"auth_ref": "secret://t"})
    assert local.stdio is not None
    assert local.stdio.args == tuple(LOCAL["stdio"]["args"])
    assert list(local.stdio.env.items()) == list(LOCAL["stdio"]["env"].items())
    assert (local.stdio.command, local.stdio.cwd) == ("uvx", "/srv/work")
    assert remote.http is not None
    assert (remote.http.url, remote.http.auth_ref) == ("https://example.org/mcp", "secret://t")


def test_env_from_is_a_short_way_to_pass_variables_on():
    stdio = Stdio(command="x", env_from=("API_TOKEN", "LOG"), env={"LOG": "warn"})
    assert stdio.environment() == {"API_TOKEN": "${ENV:API_TOKEN}", "LOG": "warn"}


@pytest.mark.requirement("record:http:tls", "record:http:insecure", "record:http:auth-types")
def test_a_remote_server_takes_certificates_and_authentication():
    http = read(REMOTE).http
    assert http is not None
    assert http.tls is not None
    assert (http.tls.ca, http.tls.client_certificate) == ("/a.pem", "/b.pem")
    assert http.auth is not None
    assert http.auth.scopes == ("api",)
    assert http.insecure
    plain = read(HTTP).http
    assert plain is not None
    assert not plain.insecure


@pytest.mark.requirement("record:http:auth-types")
def test_each_type_of_authentication_asks_for_its_own_fields():
    def auth(**fields: Any) -> dict[str, Any]:
        return HTTP | {"http": HTTP["http"] | {"auth": {"ref": "secret://t"} | fields}}

    assert read(auth()).http.auth == Auth(ref="secret://t")  # pyright: ignore[reportOptionalMemberAccess]
    assert read(auth(type="header", header="X-Key")).http
    assert problems(auth(type="header")) == ["http.auth.header: is required by type 'header'"]
    oauth = "is required by type 'oauth_client_credentials'"
    assert problems(auth(type="oauth_client_credentials")) == [
        f"http.auth.token_url: {oauth}",
        f"http.auth.client_id: {oauth}",
    ]
    (problem,) = problems(auth(type="basic"))
    assert problem.startswith("http.auth.type: ")
    (problem,) = problems(HTTP | {"http": HTTP["http"] | {"auth": {"type": "bearer"}}})
    assert problem == "http.auth.ref: is required"


def test_two_ways_to_authenticate_at_once_are_refused():
    http = HTTP["http"] | {"auth_ref": "secret://a", "auth": {"ref": "secret://b"}}
    (problem,) = problems(HTTP | {"http": http})
    assert problem.startswith("http.auth_ref: ")


def test_a_client_certificate_needs_its_key():
    (problem,) = problems(HTTP | {"http": HTTP["http"] | {"tls": {"client_certificate": "/a"}}})
    assert problem.startswith("http.tls")


@pytest.mark.parametrize("url", ["example.org", "ftp://a/", "https://", "https://a b/", "http:/x"])
def test_a_url_that_is_none_is_refused(url: str):
    (problem,) = problems(HTTP | {"http": {"url": url}})
    assert problem.startswith("http.url: ")


def test_plain_http_to_another_machine_is_reported():
    far = HTTP | {"http": {"url": "http://example.org/mcp"}}
    (warning,) = warnings(far)
    assert warning.startswith("http.url: ")
    assert "insecure" in warning
    assert warnings(HTTP | {"http": {"url": "http://127.0.0.1:9/mcp"}}) == []
    assert warnings(HTTP | {"http": {"url": "http://example.org/", "insecure": True}}) == []


@pytest.mark.parametrize("url", ["http://127.evil.example/mcp", "http://localhost.evil.example/"])
def test_a_name_that_only_begins_like_loopback_is_another_machine(url: str):
    (warning,) = warnings(HTTP | {"http": {"url": url}})
    assert warning.startswith("http.url: ")


@pytest.mark.requirement("record:tool-namespace:default")
def test_an_absent_namespace_is_made_from_the_id():
    assert read(STDIO).tool_namespace == "mcp.fs"
    assert read(STDIO, server_id="git_lab").tool_namespace == "mcp.git_lab"
    assert read(STDIO, tool_namespace="x.y").tool_namespace == "x.y"


@pytest.mark.parametrize("bad", ["a__b", ".a", "a.", "a..b", "a b", "é", "x" * 41, "1a"])
def test_a_namespace_that_makes_no_prefix_is_refused(bad: str):
    (problem,) = problems(STDIO | {"tool_namespace": bad})
    assert problem.startswith("tool_namespace: ")


@pytest.mark.requirement(
    "record:allowed-tools:default-deny",
    "record:budgets:defaults",
    "record:enabled",
    "record:tags",
    "record:sharing",
    "record:prewarm",
    "record:effects:default",
    "record:hygiene:leaks",
    "record:hygiene:redact",
)
def test_what_is_absent_has_its_default():
    record = read(STDIO)
    assert (record.allowed_tools, record.tags, record.display_name) == ((), (), "")
    budgets = record.budgets
    assert (budgets.connect_timeout_ms, budgets.list_timeout_ms) == (15_000, 12_000)
    assert budgets.start_timeout_ms is None
    assert record.stdio is not None
    assert record.stdio.home == "kept"
    assert (budgets.tool_timeout_ms, budgets.max_concurrency) == (60_000, 8)
    assert budgets.max_tool_output_bytes == 65_536
    assert (record.enabled, record.sharing, record.prewarm) == (True, "shared", False)
    assert (record.effects.read, record.effects.idempotent) == ((), ())
    assert (record.hygiene.leaks, record.hygiene.redact) == ("mask", "shape")
    assert (record.approval_policy.default, record.approval_policy.rules) == ("never", ())


@pytest.mark.requirement("record:sharing", "record:hygiene:leaks", "record:hygiene:redact")
@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("sharing", ["shared", "task", "user", "session"], ["both", "", None]),
        ("hygiene.leaks", ["off", "mask", "block"], ["on", True, "Mask"]),
        ("hygiene.redact", ["shape", "full", {"keys": ["a"]}], ["none", ["a"], {"keys": "a"}]),
        ("approval_policy.default", ["never", "always", "policy"], ["sometimes", True]),
        ("prewarm", [True, False], ["yes", 1]),
        ("enabled", [True, False], ["true", 0]),
        ("tags", [[], ["a", "team:b/c"]], ["a", [""], [1], ["a b"]]),
    ],
)
def test_a_field_takes_its_values_and_no_other(field: str, good: list[Any], bad: list[Any]):
    top, _, inner = field.partition(".")
    for value in good:
        read(STDIO, **{top: {inner: value} if inner else value})
    for value in bad:
        (problem,) = problems(STDIO | {top: {inner: value} if inner else value}) or [""]
        assert problem.startswith(field), value


@pytest.mark.requirement("record:hygiene:redact")
def test_a_list_of_keys_to_redact_is_read():
    assert read(LOCAL).hygiene.redact == RedactKeys(keys=("password",))


@pytest.mark.requirement("record:approval-policy:values", "record:approval-policy:per-tool")
def test_approval_is_a_word_for_the_server_or_a_table():
    assert read(STDIO, approval_policy="always").approval_policy.default == "always"
    record = read(STDIO, approval_policy={"per_tool": {"delete_*": "always", "x": "policy"}})
    assert record.approval_policy.per_tool == {"delete_*": "always", "x": "policy"}
    (problem,) = problems(STDIO | {"approval_policy": "sometimes"})
    assert problem.startswith("approval_policy.default: ")
    (problem,) = problems(STDIO | {"approval_policy": {"per_tool": {"a": "perhaps"}}})
    assert problem.startswith("approval_policy.per_tool.a: ")


@pytest.mark.requirement("record:approval-policy:rules")
def test_rules_are_kept_in_order():
    rules = read(LOCAL).approval_policy.rules
    assert [rule.effect for rule in rules] == ["deny", "allow"]
    assert rules[0].when == "args.path.startsWith('/etc')"
    assert rules[1].tools == ("read_*",)


@pytest.mark.requirement("record:approval-policy:bad-condition")
@pytest.mark.parametrize("when", ["args.path ==", "unknown == 1", " "])
def test_a_condition_that_does_not_parse_is_refused_when_the_record_is_read(when: str):
    rule = {"tools": ["*"], "when": when}
    (problem,) = problems(STDIO | {"approval_policy": {"rules": [{"tools": ["a"]}, rule]}})
    assert problem.startswith("approval_policy.rules[1].when: ")
    (problem,) = problems({"rules": [rule]}, PlatformRecord)
    assert problem.startswith("rules[0].when: ")


@pytest.mark.requirement("record:budgets:zero", "record:validate:path")
@pytest.mark.parametrize("value", [0, -1])
def test_a_budget_below_one_is_refused_and_never_read_as_a_small_limit(value: int):
    for field in ("tool_timeout_ms", "max_concurrency", "max_tool_output_bytes"):
        assert problems(STDIO | {"budgets": {field: value}}) == [
            f"budgets.{field}: must be at least 1"
        ]


@pytest.mark.parametrize("value", ["8", 1.5, True, None, [], 10**12])
def test_a_budget_is_a_whole_number_within_reason(value: object):
    (problem,) = problems(STDIO | {"budgets": {"max_concurrency": value}})
    assert problem.startswith("budgets.max_concurrency: must be ")


@pytest.mark.requirement("record:effects")
def test_effects_name_read_and_idempotent_tools():
    effects = read(LOCAL).effects
    assert (effects.read, effects.idempotent) == (("read_*", "search_*"), ("put_*",))


@pytest.mark.requirement("record:patterns:bad")
@pytest.mark.parametrize("bad", ["", 7, None, "*/x", "fs/", "x" * 300])
@pytest.mark.parametrize(
    ("cls", "base", "path"),
    [
        (ServerRecord, STDIO, "allowed_tools"),
        (ServerRecord, STDIO, "effects.read"),
        (TaskRecord, TASK, "mcp.tool_denylist"),
        (TaskRecord, TASK, "mcp.tool_allowlist"),
        (ProfileRecord, PROFILE, "tool_denylist"),
        (PlatformRecord, PLATFORM, "tool_denylist"),
    ],
)
def test_a_bad_pattern_is_refused_with_its_place(
    bad: object, cls: Any, base: dict[str, Any], path: str
):
    top, _, inner = path.partition(".")
    plain = base | {top: (base.get(top, {}) | {inner: ["a", bad]}) if inner else ["a", bad]}
    (problem,) = problems(plain, cls)
    assert problem.startswith(f"{path}[1]: ")


@pytest.mark.requirement("record:unknown-field:refused")
def test_an_unknown_field_is_a_problem_that_names_its_path_and_the_nearest_field():
    plain = STDIO | {"colour": 1, "budgets": {"max_concurency": 3}}
    said = [
        "budgets.max_concurency: unknown field; did you mean 'max_concurrency'?",
        "colour: unknown field",
    ]
    assert problems(plain) == said
    assert problems(plain, strict=True) == said


@pytest.mark.requirement("record:unknown-field:newer")
def test_what_a_newer_registry_wrote_is_read_with_a_warning():
    plain = STDIO | {"colour": 1}
    record, said = decode(ServerRecord, plain, lenient=True)
    assert said == ("colour: unknown field",)
    assert "colour" not in encode(record)


@pytest.mark.requirement("record:validate:all-problems", "record:validate:path")
def test_all_problems_are_reported_at_once():
    plain = {
        "server_id": "A",
        "transport": "stdio",
        "tags": ["ok", 3],
        "stdio": {"args": ["${"], "env": {"1X": "v", "OK": 5}},
        "budgets": {"max_concurrency": 0, "tool_timeout_ms": "x"},
        "approval_policy": {"default": "maybe", "rules": [{"when": "("}]},
        "allowed_tools": ["a", ""],
    }
    found = [problem.partition(": ")[0] for problem in problems(plain)]
    assert sorted(found) == [
        "allowed_tools[1]",
        "approval_policy.default",
        "budgets.max_concurrency",
        "budgets.tool_timeout_ms",
        "server_id",
        "stdio.command",
        "stdio.env.1X",
        "stdio.env.OK",
        "tags[1]",
    ]


@pytest.mark.requirement("record:validate:all-problems")
def test_problems_of_shape_and_of_sense_come_together():
    plain = STDIO | {
        "budgets": {"max_concurrency": 0},
        "stdio": {"command": "x", "args": ["${"]},
        "approval_policy": {"rules": [{"when": "(("}]},
    }
    assert [problem.partition(": ")[0] for problem in problems(plain)] == [
        "budgets.max_concurrency",
        "stdio.args[0]",
        "approval_policy.rules[0].when",
    ]


def test_a_refusal_names_where_the_record_came_from():
    with pytest.raises(InvalidRecord, match=r"^fs\.toml: server_id: is required"):
        decode(ServerRecord, {"transport": "stdio", "stdio": {"command": "x"}}, source="fs.toml")


@pytest.mark.requirement("references:malformed")
@pytest.mark.parametrize("text", ["${", "${}", "a ${ENV:} b", "${1}"])
def test_a_malformed_reference_is_refused_where_it_stands(text: str):
    stdio = {"command": "x", "args": [text], "env": {"A": text}}
    places = ["stdio.args[0]", "stdio.env.A"]
    assert [p.partition(": ")[0] for p in problems(STDIO | {"stdio": stdio})] == places
    http = {"url": "https://a/" + text, "headers": {"X": text}}
    found = [p.partition(": ")[0] for p in problems(HTTP | {"http": http})]
    assert found == ["http.url", "http.headers.X"]


@pytest.mark.requirement("references:secret:places")
@pytest.mark.parametrize("reference", ["secret://token", "file:///run/token"])
def test_a_stored_value_is_refused_where_others_can_see_it(reference: str):
    command = STDIO | {"stdio": {"command": reference}}
    args = STDIO | {"stdio": {"command": "x", "args": ["-v", reference]}}
    url = HTTP | {"http": {"url": reference}}
    assert problems(command)[0].startswith("stdio.command: ")
    assert problems(args)[0].startswith("stdio.args[1]: ")
    assert problems(url)[0].startswith("http.url: ")


@pytest.mark.requirement("references:secret:places")
def test_a_stored_value_is_accepted_in_env_headers_and_auth_ref():
    env = STDIO | {"stdio": {"command": "x", "env": {"A": "secret://a", "B": "file:///b"}}}
    http = {"url": "https://a/", "headers": {"X": "secret://x"}, "auth_ref": "secret://t"}
    assert warnings(env) == warnings(HTTP | {"http": http}) == []
    empty = STDIO | {"stdio": {"command": "x", "env": {"A": "secret://"}}}
    (problem,) = problems(empty)
    assert problem.startswith("stdio.env.A: ")


SHOWN_TO_ALL = [
    (STDIO | {"stdio": {"command": "run-${API_TOKEN}"}}, "stdio.command"),
    (STDIO | {"stdio": {"command": "x", "args": ["a", "--t=${ENV:GITLAB_PAT}"]}}, "stdio.args[1]"),
    (HTTP | {"http": {"url": "https://a/${ENV:API_KEY:-k}"}}, "http.url"),
]


@pytest.mark.requirement("references:credential-warning", "references:credential-strict")
@pytest.mark.parametrize(("plain", "path"), SHOWN_TO_ALL)
def test_a_credential_that_would_show_in_the_process_list_is_reported(
    plain: dict[str, Any], path: str
):
    (warning,) = warnings(plain)
    assert warning.startswith(f"{path}: ")
    assert "process list" in warning
    assert problems(plain, strict=True) == [warning]


@pytest.mark.requirement("references:literal-credential")
@pytest.mark.parametrize(
    ("plain", "path"),
    [
        (STDIO | {"stdio": {"command": "x --token=abcdef123456"}}, "stdio.command"),
        (STDIO | {"stdio": {"command": "x", "args": ["gl" + "pat-" + "x1" * 10]}}, "stdio.args[0]"),
        (HTTP | {"http": {"url": "https://a/?api_key=abcdef123456"}}, "http.url"),
    ],
)
def test_a_literal_credential_in_sight_is_reported(plain: dict[str, Any], path: str):
    (warning,) = warnings(plain)
    assert warning.startswith(f"{path}: ")
    assert problems(plain, strict=True) == [warning]


@pytest.mark.requirement("references:credential-warning")
def test_a_credential_in_env_or_headers_is_where_it_belongs():
    env = STDIO | {"stdio": {"command": "x", "env": {"T": "${API_TOKEN}"}, "env_from": ["KEY"]}}
    http = HTTP | {"http": {"url": "https://a/", "headers": {"Authorization": "Bearer ${TOKEN}"}}}
    assert warnings(env) == warnings(http) == []


@pytest.mark.requirement("task:executable")
def test_a_task_carries_what_it_runs():
    executable = decode(TaskRecord, TASK)[0].executable
    assert executable is not None
    assert (executable.path, executable.type) == ("review.wasm", "wasm")
    assert executable.checksum_sha256 == "0123456789abcdef" * 4
    (problem,) = problems(TASK | {"executable": {"path": "a", "checksum_sha256": "F0"}}, TaskRecord)
    assert problem.startswith("executable.checksum_sha256: ")
    assert problems(TASK | {"executable": {}}, TaskRecord) == ["executable.path: is required"]


def test_a_backend_needs_a_name_and_an_address():
    assert problems({}, BackendRecord) == ["name: is required", "base_url: is required"]
    (problem,) = problems(BACKEND | {"base_url": "example.org"}, BackendRecord)
    assert problem.startswith("base_url: ")


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        (b"a = 1\nb = = 2\n", "toml", "line 2"),
        (b'{"a": 1,\n "b": }', "json", "line 2"),
        (b'{"a": 1, "a": 2}', "json", "a"),
        (b"[1]", "json", "table"),
        (b"a = '\xff'\n", "toml", "UTF-8"),
        (b'{"a": "\xff"}', "json", "JSON"),
        (b'{"a": NaN}', "json", "JSON"),
    ],
)
def test_a_text_that_is_broken_says_where(text: bytes, form: Literal["json", "toml"], said: str):
    with pytest.raises(InvalidRecord, match=said):
        parse(text, form, source="fs")


@pytest.mark.parametrize("pattern", ["mcp__notes__delete_*", "mcp.notes.delete_*"])
@pytest.mark.requirement("record:patterns:model-name")
@pytest.mark.parametrize(
    ("cls", "base", "path"),
    [
        (TaskRecord, {"task_id": "t"}, "mcp.tool_denylist"),
        (TaskRecord, {"task_id": "t"}, "mcp.tool_allowlist"),
        (ServerRecord, STDIO, "allowed_tools"),
        (ServerRecord, STDIO, "effects.read"),
        (ProfileRecord, {"name": "p"}, "tool_denylist"),
        (PlatformRecord, {}, "tool_denylist"),
    ],
)
def test_a_pattern_that_looks_like_a_model_facing_name_is_refused(
    pattern: str, cls: Any, base: dict[str, Any], path: str
):
    top, _, inner = path.partition(".")
    plain = base | {top: {inner: [pattern]} if inner else [pattern]}
    [problem] = problems(plain, cls)
    assert problem.startswith(f"{path}[0]: ")
    assert "server/delete_*" in problem


@pytest.mark.requirement("record:patterns:model-name")
def test_such_a_pattern_that_was_stored_before_may_stay():
    plain = {"task_id": "t", "mcp": {"tool_denylist": ["mcp__notes__delete_*"]}}
    _, [said] = decode(TaskRecord, plain, familiar=frozenset({"mcp__notes__delete_*"}))
    assert said.startswith("mcp.tool_denylist[0]: ")
