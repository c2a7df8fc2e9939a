"""Settings: which source counts, what is refused, and that the page tells the truth."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bascule.app.settings import SETTINGS, Settings, load_settings, settings_file
from bascule.errors import InvalidRecord
from checks.tree import ROOT

PAGE = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
HOME = {"HOME": "/h/ada"}


def written(folder: Path, text: str) -> Path:
    path = folder / "bascule.toml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(
    folder: Path, text: str = "", environ: dict[str, str] | None = None, **flags: Any
) -> Settings:
    settings, _ = load_settings(flags, {**HOME, **(environ or {})}, written(folder, text))
    return settings


def value_of(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def problems_of(
    folder: Path, text: str = "", environ: dict[str, str] | None = None, **flags: Any
) -> tuple[str, ...]:
    with pytest.raises(InvalidRecord) as raised:
        loaded(folder, text, environ, **flags)
    return raised.value.problems


GIVEN: dict[str, tuple[str, Any, str, Any, Any]] = {
    # setting: (in the file, its value, in the environment, its value, as a flag)
    "data_dir": ('data_dir = "/f"', "/f", "/e", "/e", "/flag"),
    "environment": ('environment = "f"', "f", "e", "e", "flag"),
    "strict": ("strict = false", False, "true", True, False),
    "agents": ('agents = "/f"', "/f", "e", "e", "flag"),
    "server.host": ('server.host = "::1"', "::1", "127.0.0.2", "127.0.0.2", "127.0.0.3"),
    "server.port": ("server.port = 1", 1, "2", 2, 3),
    "server.hosts": ('server.hosts = ["f"]', ("f",), "e, [::2],", ("e", "[::2]"), None),
    "server.insecure": ("server.insecure = false", False, "ON", True, False),
    "server.max_connections": ("server.max_connections = 9", 9, "8", 8, None),
    "server.max_connections_without_token": (
        "server.max_connections_without_token = 9",
        9,
        "8",
        8,
        None,
    ),
    "server.drain_seconds": ("server.drain_seconds = 9", 9, "8", 8, None),
    "server.replica": ('server.replica = "f"', "f", "e-1.x", "e-1.x", None),
    "server.node_url": (
        'server.node_url = "https://f.example"',
        "https://f.example",
        "http://127.0.0.1:7072",
        "http://127.0.0.1:7072",
        None,
    ),
    "server.grpc": ("server.grpc = false", False, "yes", True, False),
    "server.grpc_port": ("server.grpc_port = 1", 1, "2", 2, 3),
    "server.grpc_client_ca": ('server.grpc_client_ca = "/f"', "/f", "e", "e", None),
    "store.dsn": (
        'store.dsn = "postgresql://f:secret@h/db"',
        "postgresql://f:secret@h/db",
        "postgres://e@h,[::1]:5,i:6/db?sslmode=verify-full",
        "postgres://e@h,[::1]:5,i:6/db?sslmode=verify-full",
        "postgresql:///db?host=/run/postgresql",
    ),
    "store.listen_dsn": (
        'store.dsn = "postgresql://h/d"\nstore.listen_dsn = "postgresql://f/d"',
        "postgresql://f/d",
        "postgresql://e/d",
        "postgresql://e/d",
        None,
    ),
    "mcp.registry_dir": ('mcp.registry_dir = "/f"', "/f", "e", "e", "flag"),
    "mcp.registry_file": ('mcp.registry_file = "/f"', "/f", "e", "e", "flag"),
    "mcp.follow_links": ("mcp.follow_links = false", False, "yes", True, None),
    "node.variables": ('node.variables = ["F"]', ("F",), "A_*,B", ("A_*", "B"), None),
    "node.executables": ('node.executables = ["f"]', ("f",), "", (), None),
    "node.files": ('node.files = ["f"]', ("f",), "/e/*", ("/e/*",), None),
    "node.guests": ('node.guests = ["f"]', ("f",), "/e/*.wasm", ("/e/*.wasm",), None),
    "node.max_guests": ("node.max_guests = 3", 3, "0", 0, None),
    "node.workers": ("node.workers = 2", 2, "3", 3, 4),
    "node.worker_seconds": ("node.worker_seconds = 60", 60, "90", 90, None),
    "node.guest_memory_mb": ("node.guest_memory_mb = 5", 5, "6", 6, None),
    "node.egress": ('node.egress = ["f"]', ("f",), "10.0.0.0/8", ("10.0.0.0/8",), None),
    **{
        path: (f"{path} = 5000", 5000, "8000", 8000, None)
        for path in (
            *("node.max_concurrency", "node.max_processes", "node.max_processes_per_task"),
            "node.idle_seconds",
            *("node.start_seconds", "node.list_ttl_seconds", "node.list_failure_seconds"),
            "node.max_stale",
            "node.guest_seconds",
            *("chat.max_total_tool_calls", "chat.max_output_bytes", "chat.max_seconds"),
            *("log.slow_call_ms",),
        )
    },
    "chat.max_iterations": ("chat.max_iterations = 5", 5, "6", 6, None),
    "chat.approval_wait_seconds": ("chat.approval_wait_seconds = 0", 0, "7", 7, None),
    "chat.tool_output": ('chat.tool_output = "always_json"', "always_json", "auto", "auto", None),
    "gateway.origins": (
        'gateway.origins = ["https://f.example"]',
        ("https://f.example",),
        "http://localhost:6274, vscode-webview://a-b,http://[::1]:1",
        ("http://localhost:6274", "vscode-webview://a-b", "http://[::1]:1"),
        None,
    ),
    "node.admin_origins": (
        'node.admin_origins = ["https://f.example"]',
        ("https://f.example",),
        "https://admin.example:8443, http://localhost:7070",
        ("https://admin.example:8443", "http://localhost:7070"),
        None,
    ),
    "log.level": ('log.level = "debug"', "debug", "error", "error", "off"),
    "log.format": ('log.format = "json"', "json", "text", "text", "json"),
    "ledger.enabled": ("ledger.enabled = true", True, "off", False, None),
    "ledger.durability": ('ledger.durability = "power"', "power", "kill", "kill", None),
    "ledger.anchor_file": ('ledger.anchor_file = "/f"', "/f", "/e", "/e", None),
    "ledger.reads_when_down": ("ledger.reads_when_down = true", True, "off", False, None),
    "ledger.max_days": ("ledger.max_days = 50", 50, "60", 60, None),
    "ledger.keep_days": ("ledger.keep_days = 5", 5, "6", 6, None),
    **{
        f"ledger.{name}": (f"ledger.{name} = 2000000", 2_000_000, "3000000", 3_000_000, None)
        for name in ("max_bytes", "max_backlog", "token_bytes_per_day")
    },
    **{
        f"approvals.{name}": (f"approvals.{name} = 50", 50, "60", 60, None)
        for name in ("decide_seconds", "claim_seconds", "max_pending", "hook_seconds")
    },
    "approvals.separation": ('approvals.separation = "token"', "token", "person", "person", None),
    "approvals.hook_url": (
        'approvals.hook_url = "https://a.example"',
        "https://a.example",
        "https://b.example",
        "https://b.example",
        None,
    ),
    "node.proxy": ('node.proxy = "http://a:1"', "http://a:1", "environment", "environment", None),
    "node.homes_max_mb": ("node.homes_max_mb = 1", 1, "2", 2, None),
    "node.homes_max_days": ("node.homes_max_days = 1", 1, "0", 0, None),
}
TOGETHER = {"server.tls_certificate", "server.tls_key"}
BY_NAME = {"backends"}


@pytest.mark.requirement("admin:config-order")
@pytest.mark.parametrize("path", GIVEN)
def test_a_flag_stands_above_the_environment_that_above_the_file_that_above_the_default(
    path: str, tmp_path: Path
):
    text, in_file, variable, in_environment, in_flag = GIVEN[path]
    [setting] = [setting for setting in SETTINGS if setting.path == path]
    environ = {setting.variable: variable}
    assert value_of(loaded(tmp_path), path) == default_of(path)
    assert value_of(loaded(tmp_path, text), path) == in_file
    assert value_of(loaded(tmp_path, text, environ), path) == in_environment
    if setting.flag:
        flags = {setting.flag: in_flag}
        assert value_of(loaded(tmp_path, text, environ, **flags), path) == in_flag
        assert value_of(loaded(tmp_path, text, environ, **{setting.flag: None}), path) == (
            in_environment
        )


def default_of(path: str) -> Any:
    default = value_of(Settings(), path)
    return default.replace("~", "/h/ada") if path == "data_dir" else default


def test_every_setting_of_the_struct_is_in_the_table_and_tested_for_its_order():
    names: set[str] = set()
    for field in msgspec.structs.fields(Settings):
        value = getattr(Settings(), field.name)
        if isinstance(value, msgspec.Struct):
            names |= {f"{field.name}.{inner.name}" for inner in msgspec.structs.fields(value)}
        else:
            names.add(field.name)
    assert {setting.path for setting in SETTINGS} == names == {*GIVEN, *TOGETHER, *BY_NAME}
    assert len({setting.variable for setting in SETTINGS}) == len(SETTINGS)


FILED = """\
[[backends]]
name = "a"
base_url = "https://file.example/v1"
models = ["m"]
[[backends]]
name = "b"
base_url = "https://file.example/v1"
"""


@pytest.mark.requirement("admin:config-order")
def test_backends_are_put_together_by_name_a_flag_above_the_environment_above_the_file(
    tmp_path: Path,
):
    environ = {"BASCULE_BACKENDS": "b=https://env.example/v1, c=https://env.example/v1"}
    flags = {"backend": ["c=http://localhost:8080/v1?x=1"]}
    settings = loaded(tmp_path, FILED, environ, **flags)
    assert [(b.name, b.base_url, b.models) for b in settings.backends] == [
        ("a", "https://file.example/v1", ("m",)),
        ("b", "https://env.example/v1", ()),
        ("c", "http://localhost:8080/v1?x=1", ()),
    ]


def test_a_backend_of_a_flag_takes_its_key_from_the_variable_of_its_name(tmp_path: Path):
    environ = {"OPEN_AI_API_KEY": "sk-x", "OTHER_API_KEY": ""}
    flags = {"backend": ["open.ai=https://a.example", "other=https://b.example", "4=https://c.ex"]}
    backends = loaded(tmp_path, "", environ | {"4_API_KEY": "k"}, **flags).backends
    assert [backend.key_ref for backend in backends] == ["${ENV:OPEN_AI_API_KEY}", None, None]


@pytest.mark.parametrize(
    ("environ", "flags", "problem"),
    [
        ({}, ["a"], "backends[2]: 'a' is not NAME=BASE_URL (from --backend)"),
        ({"BASCULE_BACKENDS": "=x"}, None, "backends[2]: '=x' is not NAME=BASE_URL (from BASC"),
        ({}, ["A=https://x.example"], "backends[2].name: 'A' is not"),
        ({}, ["c=x"], "backends[2].base_url: "),
        ({}, ["c=https://x.example", "c=https://y.example"], "backends[3].name: 'c' is there tw"),
    ],
)
def test_a_backend_that_cannot_be_meant_is_refused_with_where_it_came_from(
    environ: dict[str, str], flags: Any, problem: str, tmp_path: Path
):
    [found] = problems_of(tmp_path, FILED, environ, backend=flags)
    assert found.startswith(problem)
    assert "(from bascule.toml)" not in found


def test_the_registry_is_named_by_variable_or_file(tmp_path: Path):
    text = '[mcp]\nregistry_dir = "records"'
    assert loaded(tmp_path, text).mcp.registry_dir == str(tmp_path / "records")
    environ = {"BASCULE_REGISTRY_DIR": "/elsewhere"}
    assert loaded(tmp_path, text, environ).mcp.registry_dir == "/elsewhere"


def test_paths_of_the_file_are_seen_from_its_folder_and_others_as_they_are(tmp_path: Path):
    settings = loaded(
        tmp_path,
        'data_dir = "~/x"\n[server]\ntls_certificate = "../c"\ntls_key = "k"',
        {"BASCULE_TLS_KEY": "k"},
    )
    assert settings.data_dir == "/h/ada/x"
    assert settings.server.tls_certificate == f"{tmp_path}/../c"
    assert settings.server.tls_key == "k"


def test_an_empty_variable_is_one_that_is_not_given(tmp_path: Path):
    environ = {setting.variable: "" for setting in SETTINGS if setting.kind != "list"}
    assert loaded(tmp_path, "", environ) == loaded(tmp_path)


REFUSED: dict[str, tuple[str, dict[str, str], dict[str, Any], str]] = {
    "port in words": ("", {"BASCULE_PORT": "http"}, {}, "server.port: must be a whole number"),
    "port too high": ("", {"BASCULE_PORT": "65536"}, {}, "server.port: must be at most 65535"),
    "negative port": ("", {}, {"port": -1}, "server.port: must be at least 0"),
    "a switch that is none": ("", {"BASCULE_STRICT": "maybe"}, {}, "strict: must be true or false"),
    "no connection": ("server.max_connections = 0", {}, {}, "server.max_connections: must be at"),
    "an empty host": ('server.host = ""', {}, {}, "server.host: must not be empty"),
    "a host with a port": ("", {"BASCULE_HOSTS": "a:80"}, {}, "server.hosts[0]: 'a:80' is not"),
    **{
        f"the node at {url}": (
            f'server.node_url = "{url}"',
            {},
            {},
            f"server.node_url: '{url}' is not valid; expected an address as a browser writes it",
        )
        for url in ("node.example:7072", "https://n.example/", "ws://n.example", "https://a b")
    },
    "an origin of admins": (
        'node.admin_origins = ["https://a.example/admin"]',
        {},
        {},
        "node.admin_origins[0]: 'https://a.example/admin' is not valid; expected an origin",
    ),
    **{
        f"the origin {origin}": (
            f'gateway.origins = ["https://a.example", "{origin}"]',
            {},
            {},
            f"gateway.origins[1]: '{origin}' is not valid; expected an origin",
        )
        for origin in (
            *("*", "null", "a.example", "https://", "https://*.a.example", "https://a.example/"),
            *("https://a.example/mcp", "https://a.example?x", "HTTPS://a.example", "https://é.ex"),
            *("https://A.example", "https://a.example:443", "http://localhost:80", "http://a:0"),
            *("https://u@a.example", "https://a.example:x", "https://a.example, https://b.example"),
        )
    },
    "a misspelt origin's name": ('gateway.origin = ["a"]', {}, {}, "gateway.origin: unknown field"),
    "a key without a certificate": ('server.tls_key = "k"', {}, {}, "server.tls_key: "),
    "a misspelt rule": ('node.executable = ["a"]', {}, {}, "node.executable: unknown field; did"),
    "a section that is none": ("server = 3", {}, {}, "server: must be a table"),
    "a section under a variable": ("server = 3", {"BASCULE_PORT": "1"}, {}, "server: must be a"),
    "an unknown section": ("[sever]", {}, {}, "sever: unknown field; did you mean 'server'?"),
    "a table of before": ("[audit]", {}, {}, "audit: the table is [ledger] now"),
    "a list that is none": ('node.variables = "A"', {}, {}, "node.variables: must be a list"),
    "backends that are none": ("backends = 3", {}, {}, "backends: must be a list of tables"),
    "a backend that is none": ("backends = [3]", {}, {}, "backends[0]: must be a table"),
    "a backend without a URL": ('[[backends]]\nname = "a"', {}, {}, "backends[0].base_url: is req"),
    "a backend twice": (
        '[[backends]]\nname = "a"\nbase_url = "https://a"\n' * 2,
        {},
        {},
        "backends[1].name: 'a' is there twice",
    ),
    "a replica's name": ("", {"BASCULE_REPLICA": "a b"}, {}, "server.replica: 'a b' is not valid"),
    "a listener without a store": (
        "",
        {"BASCULE_LISTEN_DSN": "postgresql://h/d"},
        {},
        "store.listen_dsn: needs store.dsn",
    ),
    "no home": ("", {"HOME": ""}, {}, "data_dir: begins with ~"),
    "broken TOML": ("[server", {}, {}, "is not valid TOML"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_is_refused_with_its_path(case: str, tmp_path: Path):
    text, environ, flags, message = REFUSED[case]
    [problem] = problems_of(tmp_path, text, environ, **flags)
    assert problem.startswith(message)


@pytest.mark.parametrize("path", ["store.dsn", "store.listen_dsn"])
@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        ("host=h password=hunter2", "must be a URL: postgresql://USER@HOST:PORT/DATABASE"),
        ("mysql://u:hunter2@h/d", "must be a URL"),
        ("postgresql:u:hunter2@h/d", "must be a URL"),
        ("postgresql://[u:hunter2@h/d", "must be a URL"),
        ("postgresql://u:1/hunter2@h/d", "as %2F %3F %23 %40"),
        ("postgresql://u:1?hunter2@h/d", "as %2F %3F %23 %40"),
        ("postgresql://u:1#hunter2@h/d", "as %2F %3F %23 %40"),
        ("postgresql://u:hunter2@h:x/d", "with a port that is a number"),
        ("postgresql://u:hunter2@[::1]:/d", "with a port that is a number"),
    ],
)
@pytest.mark.requirement("registry:postgres:dsn")
def test_a_dsn_that_cannot_be_meant_is_refused_and_not_repeated(
    path: str, dsn: str, expected: str, tmp_path: Path
):
    given = {"BASCULE_DSN": "postgresql://h/d", f"BASCULE_{path.split('.')[1].upper()}": dsn}
    [problem] = problems_of(tmp_path, "", given)
    assert problem.startswith(f"{path}: ")
    assert expected in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    "dsn", ["postgresql://u:hunter2@h/d", "postgresql://h/d?user=u&password=hunter2"]
)
@pytest.mark.requirement("registry:postgres:dsn-password")
def test_a_dsn_with_a_password_is_not_taken_from_the_command_line(dsn: str, tmp_path: Path):
    [problem] = problems_of(tmp_path, dsn=dsn)
    assert problem.startswith("store.dsn: has a password, which the list of processes shows: use ")
    assert problem.endswith("(from --dsn)")
    assert "hunter2" not in problem
    assert loaded(tmp_path, environ={"BASCULE_DSN": dsn}).store.dsn == dsn
    assert loaded(tmp_path, f"store.dsn = '{dsn}'").store.dsn == dsn


def test_all_problems_are_told_at_once_with_where_they_came_from(tmp_path: Path):
    text = "strict = 1\n[server]\nprot = 2\n[[backends]]\n"
    problems = problems_of(tmp_path, text, {"BASCULE_PORT": "x"}, host="")
    origins = {problem.partition(":")[0]: problem.rpartition("from ")[2] for problem in problems}
    assert origins == {
        "strict": "bascule.toml)",
        "server.prot": "bascule.toml)",
        "server.port": "BASCULE_PORT)",
        "server.host": "--host)",
        "backends[0].name": "bascule.toml)",
        "backends[0].base_url": "bascule.toml)",
    }


def test_a_literal_credential_is_refused_and_not_repeated(tmp_path: Path):
    text = '[[backends]]\nname = "a"\nbase_url = "https://a"\nkey_ref = "a literal key"\n'
    [problem] = problems_of(tmp_path, text)
    assert problem.startswith("backends[0].key_ref: must be a reference")
    assert "literal" not in problem
    named = loaded(tmp_path, text.replace("a literal key", "openai"))
    assert named.backends[0].key_ref == "openai"


def test_a_flag_that_no_setting_has_is_a_mistake_of_the_program(tmp_path: Path):
    with pytest.raises(ValueError, match="prot"):
        loaded(tmp_path, prot=1)


def test_the_file_is_the_named_one_or_the_usual_one_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert settings_file({}) is None
    assert load_settings({}, HOME)[0].server.port == 7070
    written(tmp_path, "server.port = 1")
    assert load_settings({}, HOME)[0].server.port == 1
    (tmp_path / "other.toml").write_text("server.port = 2", encoding="utf-8")
    environ = {**HOME, "BASCULE_CONFIG": "other.toml"}
    assert load_settings({}, environ)[0].server.port == 2
    assert load_settings({}, environ, tmp_path / "bascule.toml")[0].server.port == 1


def test_a_named_file_that_is_not_there_is_told_as_such(tmp_path: Path):
    with pytest.raises(InvalidRecord, match=r"none\.toml: cannot be read"):
        load_settings({}, HOME, tmp_path / "none.toml")


def shown(value: Any) -> str:
    if value is None:
        return ""
    plain = msgspec.json.encode(value).decode()
    return f"`{plain.strip(chr(34))}`"


def test_the_page_lists_every_setting_as_it_is():
    rows = re.findall(r"^\| `([a-z_.]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    expected = [
        (
            setting.path,
            " | ".join(
                (
                    setting.kind,
                    shown(value_of(Settings(), setting.path)),
                    f"`{setting.variable}`",
                    f"`--{setting.flag.replace('_', '-')}`" if setting.flag else "",
                )
            ),
        )
        for setting in SETTINGS
    ]
    assert [(path, re.sub(r"\| +\|", "|  |", f"{rest} ").strip()) for path, rest in rows] == [
        (path, rest.strip()) for path, rest in expected
    ]


def test_the_page_says_what_each_setting_means():
    meanings = PAGE.partition("## What they mean")[2].partition("## A file")[0]
    missing = [setting.path for setting in SETTINGS if f"`{setting.path}" not in meanings]
    assert not missing
    assert "[[backends]]" in meanings


def test_the_pages_file_is_valid_and_names_every_setting(tmp_path: Path):
    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    settings = loaded(tmp_path, text)
    for setting in SETTINGS:
        assert re.search(rf"\b{setting.path.rpartition('.')[2]}(?: = |\]\])", text)
    assert [backend.name for backend in settings.backends] == ["openai"]
