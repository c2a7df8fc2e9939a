"""The settings of a process: flag over environment over ``bascule.toml`` over default.

One struct says what there is, which gives each setting its variable; one validator reports all
problems at once, each with its path and where the value came from. An unknown setting is refused: a
misspelt rule must not be a rule that is missing. A test compares ``docs/settings.md`` with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, inspect

from bascule.app.settings_tables import (
    ChatSettings,
    GatewaySettings,
    LogSettings,
    NodeSection,
    StoreSettings,
    WebOrigin,
)
from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.ledger_settings import LedgerSettings
from bascule.db.dsn import driver_files, dsn_problem, has_password
from bascule.errors import InvalidRecord
from bascule.files.scan import read_plain
from bascule.model.backend import BackendRecord
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
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
ReplicaName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
        description="a name of at most 63 letters, digits, points, dashes and underscores",
    ),
]
Plain: TypeAlias = dict[str, JsonValue]
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
    #: How long calls under way may take to end when the process is told to.
    drain_seconds: Annotated[int, Meta(ge=0, le=3_600)] = 30
    replica: ReplicaName | None = None
    #: Where the admin page finds a node, or a proxy before several.
    node_url: WebOrigin | None = None
    #: Whether gRPC is served; a control plane alone serves it unless told otherwise.
    grpc: bool | None = None
    #: Without one: the port above that of HTTP.
    grpc_port: Port | None = None
    grpc_client_ca: NonEmpty | None = None

    @property
    def beyond_loopback(self) -> bool:
        """Say whether others than this machine's users may reach it, through a proxy too."""
        return bool(self.hosts) or not _is_loopback(self.host)

    @property
    def names(self) -> tuple[str, ...]:
        """The names in requests that are its own: what it listens on, unless that is everything."""
        try:
            address = ip_address(self.host)
        except ValueError:
            return (self.host, *self.hosts)
        if address.is_unspecified:
            return self.hosts
        return (f"[{self.host}]" if address.version == 6 else self.host, *self.hosts)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


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
    store: StoreSettings = StoreSettings()
    mcp: McpSettings = McpSettings()
    node: NodeSection = NodeSection()
    chat: ChatSettings = ChatSettings()
    gateway: GatewaySettings = GatewaySettings()
    log: LogSettings = LogSettings()
    ledger: LedgerSettings = LedgerSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    backends: tuple[BackendRecord, ...] = ()

    def rules(self) -> NodeRules:
        """Return the node's rules: its lists, and our own files, which no list opens."""
        private = tuple(str(Path(path).absolute()) for path in self.own_files())
        return self.node.rules(private)

    def own_files(self) -> Iterator[str]:
        """Yield the files and folders with secrets of the process."""
        own = (self.data_dir, self.server.tls_key, self.ledger.anchor_file)
        yield from (path for path in own if path is not None)
        yield from self.store.files()


class LoadedSettings(Settings, frozen=True, kw_only=True):
    """Settings that also know where they were found."""

    file: str | None = None
    #: Where the driver of PostgreSQL looks for what a DSN does not say.
    driver_files: tuple[str, ...] = ()

    def own_files(self) -> Iterator[str]:
        """Yield the file with the settings too, which may have a password, and the driver's."""
        yield from Settings.own_files(self)
        if self.file is not None:
            yield self.file
        if self.store.dsn is not None:
            yield from self.driver_files


class Setting(Struct, frozen=True):
    """One setting: its path in the file, and the variable and flag that stand for it."""

    path: str
    kind: Kind
    variable: str
    flag: str | None = None


_PATHS = (
    *("data_dir", "agents", "server.tls_certificate", "server.tls_key"),
    *("server.grpc_client_ca", "mcp.registry_dir", "mcp.registry_file", "ledger.anchor_file"),
)
_FLAGS = {"backends": "backend"} | {
    name: name
    for name in (
        *("data_dir", "environment", "strict", "agents", "host", "port", "insecure"),
        *("tls_certificate", "tls_key", "registry_dir", "registry_file"),
        *("log_level", "log_format", "dsn", "grpc", "grpc_port"),
    )
}
_DESCRIPTION = inspect.type_info(Settings)
_KINDS: Mapping[type[inspect.Type], Kind] = {
    inspect.BoolType: "switch",
    inspect.IntType: "number",
    inspect.VarTupleType: "list",
}


def _settings(table: inspect.Type, above: str = "") -> Iterator[Setting]:
    """Yield the settings of a table and of those in it."""
    for field in table.fields if isinstance(table, inspect.StructType) else ():
        path = f"{above}{field.name}"
        if isinstance(field.type, inspect.StructType):
            yield from _settings(field.type, f"{path}.")
        else:
            name = re.sub(r"^(server|store|mcp)\.", "", path).replace(".", "_")
            kind = _kind(path, field.type)
            yield Setting(path, kind, f"BASCULE_{name.upper()}", _FLAGS.get(name))


def _kind(path: str, form: inspect.Type) -> Kind:
    if path in _PATHS:
        return "path"
    forms = form.types if isinstance(form, inspect.UnionType) else (form,)  # it, or None
    for one in forms:
        if isinstance(one, inspect.VarTupleType) and isinstance(one.item_type, inspect.StructType):
            return "pairs"
        if type(one) in _KINDS:
            return _KINDS[type(one)]
    return "text"


SETTINGS = tuple(_settings(_DESCRIPTION))
_NOTHING_ELSE: JsonObject = {}
_ITEM = re.compile(r"[a-z_.]+\[\d+\]")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
#: Tables that were called otherwise, and what to write instead.
_RENAMED = {"audit": "the table is [ledger] now, with other settings: docs/audit.md"}
_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def load_settings(
    flags: JsonObject,
    environ: Mapping[str, str],
    path: Path | None = None,
    usual: JsonObject = _NOTHING_ELSE,
) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings and their warnings; raise InvalidRecord with every problem.

    ``flags`` are by their names in ``SETTINGS``; None means not given. Without a path the file is
    the one that ``BASCULE_CONFIG`` names, else ``bascule.toml`` in the current folder, if it is
    there. ``usual`` are values by path that stand where others have their defaults.
    """
    _refuse_unknown(flags)
    file = settings_file(environ, path)
    plain: Plain = {} if file is None else _from_file(file)
    origins: dict[str, str] = {}
    for setting in SETTINGS:
        if setting.kind == "pairs":
            _add_pairs(plain, setting, flags, environ, origins)
            continue
        given = _given(setting, flags, environ)
        if given is not None:
            origins[setting.path], value = given
            _put(plain, setting.path, value)
    for usual_path, value in {"data_dir": Settings().data_dir, **usual}.items():
        if not _has(plain, usual_path):
            _put(plain, usual_path, value)
    home = environ.get("HOME")
    if home:
        _change_paths(plain, lambda path: re.sub("^~(?=/)", lambda _: home.rstrip("/"), path))
    settings, warnings = _validated(plain, origins, file)
    loaded = LoadedSettings(
        **msgspec.structs.asdict(settings),
        file=None if file is None else str(file),
        driver_files=driver_files(environ),
    )
    return loaded, warnings


def settings_file(environ: Mapping[str, str], path: Path | None = None) -> Path | None:
    """Return the file to read: as asked, or the usual one if it is there."""
    named = path or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)
    if named is not None:
        return named
    usual = Path(FILE_NAME)
    return usual if usual.is_file() else None


def _refuse_unknown(flags: JsonObject) -> None:
    unknown = set(flags) - {setting.flag for setting in SETTINGS}
    if unknown:
        raise ValueError(f"no setting has these flags: {sorted(unknown)}")


def _from_file(file: Path) -> Plain:
    """Return what the file says; its relative paths are seen from its own folder."""

    def seen(path: str) -> str:
        return path if not path or path.startswith("~") else str(file.parent / path)

    plain = dict(read_plain(file))
    _change_paths(plain, seen)
    return plain


def _given(
    setting: Setting, flags: JsonObject, environ: Mapping[str, str]
) -> tuple[str, JsonValue] | None:
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
    plain: Plain,
    setting: Setting,
    flags: JsonObject,
    environ: Mapping[str, str],
    origins: dict[str, str],
) -> None:
    """Put what is given as ``NAME=VALUE`` in place of what stands under the same name below it."""
    below = plain.get(setting.path, [])
    if not is_array(below):
        return  # the validator says so
    items: list[tuple[JsonValue, str | None]] = [(item, None) for item in below]
    # The environment first: a flag stands above it.
    for given in (_given(setting, {}, environ), _given(setting, flags, {})):
        if given is not None:
            origin, texts = given
            added = [_backend(text, environ) for text in texts] if is_array(texts) else []
            names = [_name(item) for item in added if is_object(item)]
            kept = [pair for pair in items if _name(pair[0]) not in names]
            items = [*kept, *((item, origin) for item in added)]
    plain[setting.path] = [item for item, _ in items]
    for index, (_, origin) in enumerate(items):
        if origin is not None:
            origins[f"{setting.path}[{index}]"] = origin


def _name(item: JsonValue) -> JsonValue:
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


def _from_text(kind: Kind, text: str) -> JsonValue:
    """Return a variable's text as the value it stands for; as it is, if it stands for none."""
    if kind in ("list", "pairs"):
        return [item.strip() for item in text.split(",") if item.strip()]
    if kind == "number" and re.fullmatch(r"-?[0-9]{1,10}", text):
        return int(text)
    return _SWITCH.get(text.lower(), text) if kind == "switch" else text


def _put(plain: Plain, path: str, value: JsonValue) -> None:
    section, _, name = path.rpartition(".")
    table = plain.get(section, {}) if section else plain
    if is_object(table):  # what is not a table is reported by the validator
        plain |= {section: {**table, name: value}} if section else {name: value}


def _has(plain: Plain, path: str) -> bool:
    section, _, name = path.rpartition(".")
    table = plain.get(section) if section else plain
    return is_object(table) and name in table


def _change_paths(plain: Plain, change: Callable[[str], str]) -> None:
    for path in _PATHS:
        section, _, name = path.rpartition(".")
        table = plain.get(section) if section else plain
        value = table.get(name) if is_object(table) else None
        if isinstance(value, str):
            _put(plain, path, change(value))


def _validated(
    plain: Plain, origins: Mapping[str, str], file: Path | None
) -> tuple[Settings, tuple[str, ...]]:
    findings = Findings(strict=True)
    backends = plain.pop("backends", [])
    for name in _RENAMED.keys() & plain.keys():
        findings.problem(name, _RENAMED[name])
        del plain[name]
    clean = collect(_DESCRIPTION, plain, "", findings)
    settings = msgspec.convert(clean, Settings)  # what is broken stands at its default
    _check(settings, findings)
    _check_store(settings.store, origins, findings)
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
    if settings.ledger.keep_days > settings.ledger.max_days:
        findings.problem("ledger.keep_days", "is more than ledger.max_days")
    if settings.approvals.hook_url is not None:
        _check_hook(settings.approvals.hook_url, settings.node.egress, findings)


def _check_store(store: StoreSettings, origins: Mapping[str, str], findings: Findings) -> None:
    for path, dsn in (("store.dsn", store.dsn), ("store.listen_dsn", store.listen_dsn)):
        problem = None if dsn is None else dsn_problem(dsn)
        if problem is not None:
            findings.problem(path, problem)
    if store.listen_dsn is not None and store.dsn is None:
        findings.problem("store.listen_dsn", "needs store.dsn, whose server it leads to")
    if origins.get("store.dsn", "").startswith("--") and has_password(store.dsn or ""):
        findings.problem(
            "store.dsn",
            "has a password, which the list of processes shows: use BASCULE_DSN, the settings "
            "file, or a file that PGPASSFILE names",
        )


def _check_hook(url: str, egress: tuple[str, ...], findings: Findings) -> None:
    from bascule.control.hook_address import hook_address  # noqa: PLC0415 - few have one

    try:
        hook_address(url, egress)
    except InvalidRecord as error:
        findings.problems += error.problems


def _backends(value: JsonValue, findings: Findings, *, strict: bool) -> tuple[BackendRecord, ...]:
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
