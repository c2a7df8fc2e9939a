"""The settings of a process: flag over environment over ``bascule.toml`` over default.

One struct says what there is, one table says which variable and flag stand for it, and one
validator reports all problems at once, each with its path and where the value came from. An
unknown setting is refused: a misspelt rule must not be a rule that is missing. Below: the
collector of ``bascule.wire``, the node's own rules. Above: the composition roots. The page
``docs/settings.md`` is compared with both by a test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, inspect

from bascule.app.settings_tables import AuditSettings, ChatSettings, LogSettings, NodeSection
from bascule.errors import InvalidRecord
from bascule.files.scan import read_plain
from bascule.model.backend import BackendRecord
from bascule.model.json import is_array, is_object
from bascule.model.server import NonEmpty
from bascule.outbound.rules import NodeRules
from bascule.wire.collector import Findings, collect
from bascule.wire.records import decode

FILE_NAME = "bascule.toml"
FILE_VARIABLE = "BASCULE_CONFIG"

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
HostName = Annotated[
    str,
    Meta(
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)$",
        description="a host name or address without a port",
    ),
]
Kind = Literal["text", "path", "number", "switch", "list", "pairs"]


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Where the process listens, and which names it answers to besides loopback's."""

    host: NonEmpty = "127.0.0.1"
    port: Port = 7070
    hosts: tuple[HostName, ...] = ()
    tls_certificate: NonEmpty | None = None
    tls_key: NonEmpty | None = None
    insecure: bool = False
    max_connections: Count = 512
    max_connections_without_token: Count = 64


class McpSettings(Struct, frozen=True, kw_only=True):
    """Where records come from at start."""

    registry_dir: NonEmpty | None = None
    registry_file: NonEmpty | None = None
    follow_links: bool = False


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that a process is told before it starts."""

    data_dir: NonEmpty = "~/.local/share/bascule"
    environment: NonEmpty | None = None
    strict: bool = False
    agents: NonEmpty | None = None
    server: ServerSettings = ServerSettings()
    mcp: McpSettings = McpSettings()
    node: NodeSection = NodeSection()
    chat: ChatSettings = ChatSettings()
    log: LogSettings = LogSettings()
    audit: AuditSettings = AuditSettings()
    backends: tuple[BackendRecord, ...] = ()

    def rules(self) -> NodeRules:
        """Return the node's rules: its lists, and our own files, which no list opens."""
        own = (self.data_dir, self.server.tls_key)
        private = tuple(str(Path(path).absolute()) for path in own if path is not None)
        return self.node.rules(private)


class Setting(Struct, frozen=True):
    """One setting: its path in the file, and the variable and flag that stand for it."""

    path: str
    kind: Kind
    variable: str
    flag: str | None = None


SETTINGS = (
    Setting("data_dir", "path", "BASCULE_DATA_DIR", "data_dir"),
    Setting("environment", "text", "BASCULE_ENVIRONMENT", "environment"),
    Setting("strict", "switch", "BASCULE_STRICT", "strict"),
    Setting("agents", "path", "BASCULE_AGENTS", "agents"),
    Setting("server.host", "text", "BASCULE_HOST", "host"),
    Setting("server.port", "number", "BASCULE_PORT", "port"),
    Setting("server.hosts", "list", "BASCULE_HOSTS"),
    Setting("server.tls_certificate", "path", "BASCULE_TLS_CERTIFICATE", "tls_certificate"),
    Setting("server.tls_key", "path", "BASCULE_TLS_KEY", "tls_key"),
    Setting("server.insecure", "switch", "BASCULE_INSECURE", "insecure"),
    Setting("server.max_connections", "number", "BASCULE_MAX_CONNECTIONS"),
    Setting(
        "server.max_connections_without_token", "number", "BASCULE_MAX_CONNECTIONS_WITHOUT_TOKEN"
    ),
    Setting("mcp.registry_dir", "path", "BASCULE_REGISTRY_DIR", "registry_dir"),
    Setting("mcp.registry_file", "path", "BASCULE_REGISTRY_FILE", "registry_file"),
    Setting("mcp.follow_links", "switch", "BASCULE_FOLLOW_LINKS"),
    Setting("node.variables", "list", "BASCULE_NODE_VARIABLES"),
    Setting("node.executables", "list", "BASCULE_NODE_EXECUTABLES"),
    Setting("node.files", "list", "BASCULE_NODE_FILES"),
    Setting("node.egress", "list", "BASCULE_NODE_EGRESS"),
    Setting("node.homes_max_mb", "number", "BASCULE_NODE_HOMES_MAX_MB"),
    Setting("node.homes_max_days", "number", "BASCULE_NODE_HOMES_MAX_DAYS"),
    Setting("node.max_concurrency", "number", "BASCULE_NODE_MAX_CONCURRENCY"),
    Setting("node.max_processes", "number", "BASCULE_NODE_MAX_PROCESSES"),
    Setting("node.idle_seconds", "number", "BASCULE_NODE_IDLE_SECONDS"),
    Setting("node.start_seconds", "number", "BASCULE_NODE_START_SECONDS"),
    Setting("node.list_ttl_seconds", "number", "BASCULE_NODE_LIST_TTL_SECONDS"),
    Setting("node.list_failure_seconds", "number", "BASCULE_NODE_LIST_FAILURE_SECONDS"),
    Setting("chat.max_iterations", "number", "BASCULE_CHAT_MAX_ITERATIONS"),
    Setting("chat.max_total_tool_calls", "number", "BASCULE_CHAT_MAX_TOTAL_TOOL_CALLS"),
    Setting("chat.max_output_bytes", "number", "BASCULE_CHAT_MAX_OUTPUT_BYTES"),
    Setting("chat.max_seconds", "number", "BASCULE_CHAT_MAX_SECONDS"),
    Setting("chat.tool_output", "text", "BASCULE_CHAT_TOOL_OUTPUT"),
    Setting("log.level", "text", "BASCULE_LOG_LEVEL", "log_level"),
    Setting("log.format", "text", "BASCULE_LOG_FORMAT", "log_format"),
    Setting("log.slow_call_ms", "number", "BASCULE_LOG_SLOW_CALL_MS"),
    Setting("audit.enabled", "switch", "BASCULE_AUDIT_ENABLED"),
    Setting("audit.max_bytes", "number", "BASCULE_AUDIT_MAX_BYTES"),
    Setting("audit.max_files", "number", "BASCULE_AUDIT_MAX_FILES"),
    Setting("backends", "pairs", "BASCULE_BACKENDS", "backend"),
)
_ITEM = re.compile(r"[a-z_.]+\[\d+\]")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def load_settings(
    flags: Mapping[str, Any], environ: Mapping[str, str], path: Path | None = None
) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings and their warnings; raise InvalidRecord with every problem.

    ``flags`` are by their names in ``SETTINGS``; None means not given. Without a path the file is
    the one that ``BASCULE_CONFIG`` names, else ``bascule.toml`` in the current folder, if it is
    there.
    """
    _refuse_unknown(flags)
    file = settings_file(environ, path)
    plain = {} if file is None else _from_file(file)
    origins: dict[str, str] = {}
    for setting in SETTINGS:
        if setting.kind == "pairs":
            _add_pairs(plain, setting, flags, environ, origins)
            continue
        given = _given(setting, flags, environ)
        if given is not None:
            origins[setting.path], value = given
            _put(plain, setting.path, value)
    plain.setdefault("data_dir", Settings().data_dir)
    _expand_home(plain, environ)
    return _validated(plain, origins, file)


def settings_file(environ: Mapping[str, str], path: Path | None = None) -> Path | None:
    """Return the file to read: as asked, or the usual one if it is there."""
    named = path or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)
    if named is not None:
        return named
    usual = Path(FILE_NAME)
    return usual if usual.is_file() else None


def _refuse_unknown(flags: Mapping[str, Any]) -> None:
    unknown = set(flags) - {setting.flag for setting in SETTINGS}
    if unknown:
        raise ValueError(f"no setting has these flags: {sorted(unknown)}")


def _from_file(file: Path) -> dict[str, Any]:
    """Return what the file says; its relative paths are seen from its own folder."""
    plain = {
        key: dict(value) if is_object(value) else value for key, value in read_plain(file).items()
    }
    for setting in SETTINGS:
        if setting.kind == "path":
            value = _get(plain, setting.path)
            if isinstance(value, str) and value and not value.startswith("~"):
                _put(plain, setting.path, str(file.parent / value))
    return plain


def _given(
    setting: Setting, flags: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[str, Any] | None:
    """Return where a setting is given, above the file, and its value."""
    value = flags.get(setting.flag) if setting.flag else None
    if setting.flag and value is not None:
        return f"--{setting.flag.replace('_', '-')}", value
    text = environ.get(setting.variable)
    # An empty variable is one that is not given. For a list it is an empty list: most lists are
    # rules, and "nothing" must not become "no rule".
    if text is None or (text == "" and setting.kind != "list"):
        return None
    return setting.variable, _from_text(setting.kind, text)


def _add_pairs(
    plain: dict[str, Any],
    setting: Setting,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    origins: dict[str, str],
) -> None:
    """Put what is given as ``NAME=VALUE`` in place of what stands under the same name below it."""
    below = plain.get(setting.path, [])
    if not is_array(below):
        return  # the validator says so
    items: list[tuple[Any, str | None]] = [(item, None) for item in below]
    # The environment first: a flag stands above it.
    for given in (_given(setting, {}, environ), _given(setting, flags, {})):
        if given is not None:
            origin, texts = given
            added = [_backend(text, environ) for text in texts]
            names = {item["name"] for item in added if is_object(item)}
            kept = [pair for pair in items if _name(pair[0]) not in names]
            items = [*kept, *((item, origin) for item in added)]
    plain[setting.path] = [item for item, _ in items]
    for index, (_, origin) in enumerate(items):
        if origin is not None:
            origins[f"{setting.path}[{index}]"] = origin


def _name(item: Any) -> Any:
    return item.get("name") if is_object(item) else None


def _backend(text: str, environ: Mapping[str, str]) -> dict[str, str] | str:
    """Return the backend of ``NAME=BASE_URL``; its key is in ``NAME_API_KEY``, if that is set."""
    name, equals, url = text.partition("=")
    if not (name and equals and url):
        return text
    backend = {"name": name.strip(), "base_url": url.strip()}
    variable = re.sub(r"[^A-Z0-9]", "_", backend["name"].upper()) + "_API_KEY"
    if environ.get(variable) and _VARIABLE.fullmatch(variable):
        backend["key_ref"] = f"${{ENV:{variable}}}"
    return backend


def _from_text(kind: Kind, text: str) -> Any:
    """Return a variable's text as the value it stands for; as it is, if it stands for none."""
    if kind in ("list", "pairs"):
        return [item.strip() for item in text.split(",") if item.strip()]
    if kind == "number" and re.fullmatch(r"-?[0-9]{1,10}", text):
        return int(text)
    return _SWITCH.get(text.lower(), text) if kind == "switch" else text


def _get(plain: Mapping[str, Any], path: str) -> Any:
    section, _, name = path.rpartition(".")
    table = plain.get(section) if section else plain
    return table.get(name) if is_object(table) else None


def _put(plain: dict[str, Any], path: str, value: Any) -> None:
    section, _, name = path.rpartition(".")
    table = plain.setdefault(section, {}) if section else plain
    if isinstance(table, dict):  # what is not a table is reported by the validator
        table[name] = value


def _expand_home(plain: dict[str, Any], environ: Mapping[str, str]) -> None:
    for setting in SETTINGS:
        value = _get(plain, setting.path) if setting.kind == "path" else None
        if isinstance(value, str) and value.startswith("~/") and environ.get("HOME"):
            _put(plain, setting.path, environ["HOME"].rstrip("/") + value[1:])


def _validated(
    plain: dict[str, Any], origins: Mapping[str, str], file: Path | None
) -> tuple[Settings, tuple[str, ...]]:
    findings = Findings(strict=True)
    backends = plain.pop("backends", [])
    clean = collect(inspect.type_info(Settings), plain, "", findings)
    settings = msgspec.convert(clean, Settings)  # what is broken stands at its default
    _check(settings, findings)
    records = _backends(backends, findings, strict=settings.strict)
    if findings.problems:
        raise InvalidRecord([_located(problem, origins, file) for problem in findings.problems])
    return msgspec.structs.replace(settings, backends=records), tuple(findings.warnings)


def _check(settings: Settings, findings: Findings) -> None:
    server = settings.server
    if (server.tls_certificate is None) != (server.tls_key is None):
        findings.problem("server.tls_key", "tls_certificate and tls_key go together")
    if not Path(settings.data_dir).is_absolute() and settings.data_dir.startswith("~"):
        findings.problem("data_dir", "begins with ~ and there is no HOME to put there")


def _backends(value: Any, findings: Findings, *, strict: bool) -> tuple[BackendRecord, ...]:
    if not is_array(value):
        findings.problem("backends", "must be a list of tables: [[backends]]")
        return ()
    records: dict[str, BackendRecord] = {}
    for index, item in enumerate(value):
        if isinstance(item, str):
            findings.problem(f"backends[{index}]", f"{item!r} is not NAME=BASE_URL")
            continue
        try:
            record, warnings = decode(BackendRecord, item, strict=strict)
        except InvalidRecord as error:
            findings.problems += [_inside(f"backends[{index}]", line) for line in error.problems]
            continue
        findings.warnings += [f"backends[{index}].{warning}" for warning in warnings]
        if records.setdefault(record.name, record) is not record:
            findings.problem(f"backends[{index}].name", f"{record.name!r} is there twice")
    return tuple(records.values())


def _inside(path: str, problem: str) -> str:
    """Put a record's problem where the record is; one without a path is about all of it."""
    return f"{path}.{problem}" if ": " in problem else f"{path}: {problem}"


def _located(problem: str, origins: Mapping[str, str], file: Path | None) -> str:
    """Say with a problem where its value came from."""
    path = problem.partition(":")[0]
    item = _ITEM.match(path)
    origin = (origins.get(item[0]) if item else None) or origins.get(path.partition("[")[0])
    origin = origin or (file.name if file is not None else None)
    return f"{problem} (from {origin})" if origin else problem
