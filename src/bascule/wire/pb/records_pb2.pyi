from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StringList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class Json(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class RecordInfo(_message.Message):
    __slots__ = ("revision", "updated_at", "owner", "extra")
    class ExtraEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Json
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Json, _Mapping[str, object]]] = ...) -> None: ...
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    revision: int
    updated_at: str
    owner: str
    extra: _containers.MessageMap[str, Json]
    def __init__(self, revision: _Optional[int] = ..., updated_at: _Optional[str] = ..., owner: _Optional[str] = ..., extra: _Optional[_Mapping[str, Json]] = ...) -> None: ...

class McpServerRecord(_message.Message):
    __slots__ = ("server_id", "transport", "version", "display_name", "enabled", "tags", "tool_namespace", "allowed_tools", "sharing", "prewarm", "stdio", "http", "effects", "budgets", "approval_policy", "hygiene", "sandbox", "info")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_TOOLS_FIELD_NUMBER: _ClassVar[int]
    SHARING_FIELD_NUMBER: _ClassVar[int]
    PREWARM_FIELD_NUMBER: _ClassVar[int]
    STDIO_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_POLICY_FIELD_NUMBER: _ClassVar[int]
    HYGIENE_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    transport: str
    version: int
    display_name: str
    enabled: bool
    tags: _containers.RepeatedScalarFieldContainer[str]
    tool_namespace: str
    allowed_tools: _containers.RepeatedScalarFieldContainer[str]
    sharing: str
    prewarm: bool
    stdio: Stdio
    http: Http
    effects: Effects
    budgets: Budgets
    approval_policy: ApprovalPolicy
    hygiene: Hygiene
    sandbox: Sandbox
    info: RecordInfo
    def __init__(self, server_id: _Optional[str] = ..., transport: _Optional[str] = ..., version: _Optional[int] = ..., display_name: _Optional[str] = ..., enabled: bool = ..., tags: _Optional[_Iterable[str]] = ..., tool_namespace: _Optional[str] = ..., allowed_tools: _Optional[_Iterable[str]] = ..., sharing: _Optional[str] = ..., prewarm: bool = ..., stdio: _Optional[_Union[Stdio, _Mapping[str, object]]] = ..., http: _Optional[_Union[Http, _Mapping[str, object]]] = ..., effects: _Optional[_Union[Effects, _Mapping[str, object]]] = ..., budgets: _Optional[_Union[Budgets, _Mapping[str, object]]] = ..., approval_policy: _Optional[_Union[ApprovalPolicy, _Mapping[str, object]]] = ..., hygiene: _Optional[_Union[Hygiene, _Mapping[str, object]]] = ..., sandbox: _Optional[_Union[Sandbox, _Mapping[str, object]]] = ..., info: _Optional[_Union[RecordInfo, _Mapping[str, object]]] = ...) -> None: ...

class Stdio(_message.Message):
    __slots__ = ("command", "args", "env", "env_from", "cwd", "home")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    ENV_FROM_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    command: str
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    env_from: _containers.RepeatedScalarFieldContainer[str]
    cwd: str
    home: str
    def __init__(self, command: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., env_from: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., home: _Optional[str] = ...) -> None: ...

class Sandbox(_message.Message):
    __slots__ = ("level", "required", "read", "write", "network", "hosts", "memory_mb", "processes", "cpu_seconds", "open_files", "home_mb", "build")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    HOME_MB_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    level: str
    required: bool
    read: _containers.RepeatedScalarFieldContainer[str]
    write: StringList
    network: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    memory_mb: int
    processes: int
    cpu_seconds: int
    open_files: int
    home_mb: int
    build: bool
    def __init__(self, level: _Optional[str] = ..., required: bool = ..., read: _Optional[_Iterable[str]] = ..., write: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., network: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., memory_mb: _Optional[int] = ..., processes: _Optional[int] = ..., cpu_seconds: _Optional[int] = ..., open_files: _Optional[int] = ..., home_mb: _Optional[int] = ..., build: bool = ...) -> None: ...

class Http(_message.Message):
    __slots__ = ("url", "headers", "auth_ref", "auth", "tls", "insecure")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    AUTH_REF_FIELD_NUMBER: _ClassVar[int]
    AUTH_FIELD_NUMBER: _ClassVar[int]
    TLS_FIELD_NUMBER: _ClassVar[int]
    INSECURE_FIELD_NUMBER: _ClassVar[int]
    url: str
    headers: _containers.ScalarMap[str, str]
    auth_ref: str
    auth: Auth
    tls: Tls
    insecure: bool
    def __init__(self, url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., auth_ref: _Optional[str] = ..., auth: _Optional[_Union[Auth, _Mapping[str, object]]] = ..., tls: _Optional[_Union[Tls, _Mapping[str, object]]] = ..., insecure: bool = ...) -> None: ...

class Auth(_message.Message):
    __slots__ = ("type", "ref", "header", "token_url", "client_id", "scopes")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_URL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    type: str
    ref: str
    header: str
    token_url: str
    client_id: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, type: _Optional[str] = ..., ref: _Optional[str] = ..., header: _Optional[str] = ..., token_url: _Optional[str] = ..., client_id: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ...) -> None: ...

class Tls(_message.Message):
    __slots__ = ("ca", "client_certificate", "client_key")
    CA_FIELD_NUMBER: _ClassVar[int]
    CLIENT_CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_KEY_FIELD_NUMBER: _ClassVar[int]
    ca: str
    client_certificate: str
    client_key: str
    def __init__(self, ca: _Optional[str] = ..., client_certificate: _Optional[str] = ..., client_key: _Optional[str] = ...) -> None: ...

class Effects(_message.Message):
    __slots__ = ("read", "idempotent")
    READ_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENT_FIELD_NUMBER: _ClassVar[int]
    read: _containers.RepeatedScalarFieldContainer[str]
    idempotent: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, read: _Optional[_Iterable[str]] = ..., idempotent: _Optional[_Iterable[str]] = ...) -> None: ...

class Budgets(_message.Message):
    __slots__ = ("connect_timeout_ms", "start_timeout_ms", "list_timeout_ms", "tool_timeout_ms", "max_concurrency", "max_tool_output_bytes", "max_media_bytes")
    CONNECT_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    START_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    LIST_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TOOL_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    MAX_TOOL_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MEDIA_BYTES_FIELD_NUMBER: _ClassVar[int]
    connect_timeout_ms: int
    start_timeout_ms: int
    list_timeout_ms: int
    tool_timeout_ms: int
    max_concurrency: int
    max_tool_output_bytes: int
    max_media_bytes: int
    def __init__(self, connect_timeout_ms: _Optional[int] = ..., start_timeout_ms: _Optional[int] = ..., list_timeout_ms: _Optional[int] = ..., tool_timeout_ms: _Optional[int] = ..., max_concurrency: _Optional[int] = ..., max_tool_output_bytes: _Optional[int] = ..., max_media_bytes: _Optional[int] = ...) -> None: ...

class ApprovalPolicy(_message.Message):
    __slots__ = ("default", "per_tool", "rules")
    class PerToolEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    PER_TOOL_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    default: str
    per_tool: _containers.ScalarMap[str, str]
    rules: _containers.RepeatedCompositeFieldContainer[ApprovalRule]
    def __init__(self, default: _Optional[str] = ..., per_tool: _Optional[_Mapping[str, str]] = ..., rules: _Optional[_Iterable[_Union[ApprovalRule, _Mapping[str, object]]]] = ...) -> None: ...

class ApprovalRule(_message.Message):
    __slots__ = ("tools", "when", "effect")
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    WHEN_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    tools: StringList
    when: str
    effect: str
    def __init__(self, tools: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., when: _Optional[str] = ..., effect: _Optional[str] = ...) -> None: ...

class Hygiene(_message.Message):
    __slots__ = ("leaks", "redact", "output_schema")
    LEAKS_FIELD_NUMBER: _ClassVar[int]
    REDACT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    leaks: str
    redact: Redaction
    output_schema: str
    def __init__(self, leaks: _Optional[str] = ..., redact: _Optional[_Union[Redaction, _Mapping[str, object]]] = ..., output_schema: _Optional[str] = ...) -> None: ...

class Redaction(_message.Message):
    __slots__ = ("word", "table")
    WORD_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    word: str
    table: RedactKeys
    def __init__(self, word: _Optional[str] = ..., table: _Optional[_Union[RedactKeys, _Mapping[str, object]]] = ...) -> None: ...

class RedactKeys(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: StringList
    def __init__(self, keys: _Optional[_Union[StringList, _Mapping[str, object]]] = ...) -> None: ...

class Selection(_message.Message):
    __slots__ = ("default_server_ids", "allowed_server_ids", "server_tags", "tool_allowlist", "tool_denylist", "read_only")
    DEFAULT_SERVER_IDS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_SERVER_IDS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TAGS_FIELD_NUMBER: _ClassVar[int]
    TOOL_ALLOWLIST_FIELD_NUMBER: _ClassVar[int]
    TOOL_DENYLIST_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    default_server_ids: StringList
    allowed_server_ids: StringList
    server_tags: StringList
    tool_allowlist: StringList
    tool_denylist: _containers.RepeatedScalarFieldContainer[str]
    read_only: bool
    def __init__(self, default_server_ids: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., allowed_server_ids: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., server_tags: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., tool_allowlist: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., tool_denylist: _Optional[_Iterable[str]] = ..., read_only: bool = ...) -> None: ...

class TaskRecord(_message.Message):
    __slots__ = ("task_id", "version", "name", "description", "mcp", "config", "executable", "info")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Json
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Json, _Mapping[str, object]]] = ...) -> None: ...
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MCP_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    version: int
    name: str
    description: str
    mcp: TaskPolicy
    config: _containers.MessageMap[str, Json]
    executable: Executable
    info: RecordInfo
    def __init__(self, task_id: _Optional[str] = ..., version: _Optional[int] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., mcp: _Optional[_Union[TaskPolicy, _Mapping[str, object]]] = ..., config: _Optional[_Mapping[str, Json]] = ..., executable: _Optional[_Union[Executable, _Mapping[str, object]]] = ..., info: _Optional[_Union[RecordInfo, _Mapping[str, object]]] = ...) -> None: ...

class TaskPolicy(_message.Message):
    __slots__ = ("default_server_ids", "allowed_server_ids", "server_tags", "tool_allowlist", "tool_denylist", "read_only", "enabled", "max_tools", "profile", "profile_overrides", "max_iterations", "max_total_tool_calls", "max_tool_output_bytes", "tool_output", "users", "allowed_groups", "user_from_request", "approval_wait_ms")
    DEFAULT_SERVER_IDS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_SERVER_IDS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TAGS_FIELD_NUMBER: _ClassVar[int]
    TOOL_ALLOWLIST_FIELD_NUMBER: _ClassVar[int]
    TOOL_DENYLIST_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    MAX_TOOLS_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    PROFILE_OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    MAX_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOTAL_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOOL_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOOL_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    USER_FROM_REQUEST_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    default_server_ids: StringList
    allowed_server_ids: StringList
    server_tags: StringList
    tool_allowlist: StringList
    tool_denylist: _containers.RepeatedScalarFieldContainer[str]
    read_only: bool
    enabled: bool
    max_tools: int
    profile: str
    profile_overrides: Selection
    max_iterations: int
    max_total_tool_calls: int
    max_tool_output_bytes: int
    tool_output: str
    users: str
    allowed_groups: StringList
    user_from_request: bool
    approval_wait_ms: int
    def __init__(self, default_server_ids: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., allowed_server_ids: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., server_tags: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., tool_allowlist: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., tool_denylist: _Optional[_Iterable[str]] = ..., read_only: bool = ..., enabled: bool = ..., max_tools: _Optional[int] = ..., profile: _Optional[str] = ..., profile_overrides: _Optional[_Union[Selection, _Mapping[str, object]]] = ..., max_iterations: _Optional[int] = ..., max_total_tool_calls: _Optional[int] = ..., max_tool_output_bytes: _Optional[int] = ..., tool_output: _Optional[str] = ..., users: _Optional[str] = ..., allowed_groups: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., user_from_request: bool = ..., approval_wait_ms: _Optional[int] = ...) -> None: ...

class Executable(_message.Message):
    __slots__ = ("path", "type", "checksum_sha256", "args", "env")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PATH_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_SHA256_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    path: str
    type: str
    checksum_sha256: str
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    def __init__(self, path: _Optional[str] = ..., type: _Optional[str] = ..., checksum_sha256: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ProfileRecord(_message.Message):
    __slots__ = ("default_server_ids", "allowed_server_ids", "server_tags", "tool_allowlist", "tool_denylist", "read_only", "name", "version", "description", "environments", "info")
    class EnvironmentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Selection
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Selection, _Mapping[str, object]]] = ...) -> None: ...
    DEFAULT_SERVER_IDS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_SERVER_IDS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TAGS_FIELD_NUMBER: _ClassVar[int]
    TOOL_ALLOWLIST_FIELD_NUMBER: _ClassVar[int]
    TOOL_DENYLIST_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENTS_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    default_server_ids: StringList
    allowed_server_ids: StringList
    server_tags: StringList
    tool_allowlist: StringList
    tool_denylist: _containers.RepeatedScalarFieldContainer[str]
    read_only: bool
    name: str
    version: int
    description: str
    environments: _containers.MessageMap[str, Selection]
    info: RecordInfo
    def __init__(self, default_server_ids: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., allowed_server_ids: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., server_tags: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., tool_allowlist: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., tool_denylist: _Optional[_Iterable[str]] = ..., read_only: bool = ..., name: _Optional[str] = ..., version: _Optional[int] = ..., description: _Optional[str] = ..., environments: _Optional[_Mapping[str, Selection]] = ..., info: _Optional[_Union[RecordInfo, _Mapping[str, object]]] = ...) -> None: ...

class PlatformRecord(_message.Message):
    __slots__ = ("version", "tool_denylist", "default_approval", "rules", "ceilings", "sandbox", "info")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOOL_DENYLIST_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_APPROVAL_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    CEILINGS_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    version: int
    tool_denylist: _containers.RepeatedScalarFieldContainer[str]
    default_approval: str
    rules: _containers.RepeatedCompositeFieldContainer[ApprovalRule]
    ceilings: Ceilings
    sandbox: SandboxFloor
    info: RecordInfo
    def __init__(self, version: _Optional[int] = ..., tool_denylist: _Optional[_Iterable[str]] = ..., default_approval: _Optional[str] = ..., rules: _Optional[_Iterable[_Union[ApprovalRule, _Mapping[str, object]]]] = ..., ceilings: _Optional[_Union[Ceilings, _Mapping[str, object]]] = ..., sandbox: _Optional[_Union[SandboxFloor, _Mapping[str, object]]] = ..., info: _Optional[_Union[RecordInfo, _Mapping[str, object]]] = ...) -> None: ...

class Ceilings(_message.Message):
    __slots__ = ("connect_timeout_ms", "list_timeout_ms", "tool_timeout_ms", "max_concurrency", "max_tool_output_bytes", "max_media_bytes")
    CONNECT_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    LIST_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TOOL_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    MAX_TOOL_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MEDIA_BYTES_FIELD_NUMBER: _ClassVar[int]
    connect_timeout_ms: int
    list_timeout_ms: int
    tool_timeout_ms: int
    max_concurrency: int
    max_tool_output_bytes: int
    max_media_bytes: int
    def __init__(self, connect_timeout_ms: _Optional[int] = ..., list_timeout_ms: _Optional[int] = ..., tool_timeout_ms: _Optional[int] = ..., max_concurrency: _Optional[int] = ..., max_tool_output_bytes: _Optional[int] = ..., max_media_bytes: _Optional[int] = ...) -> None: ...

class SandboxFloor(_message.Message):
    __slots__ = ("level", "required", "network", "hosts", "memory_mb", "processes", "cpu_seconds", "open_files", "home_mb", "build")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    HOME_MB_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    level: str
    required: bool
    network: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    memory_mb: int
    processes: int
    cpu_seconds: int
    open_files: int
    home_mb: int
    build: bool
    def __init__(self, level: _Optional[str] = ..., required: bool = ..., network: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., memory_mb: _Optional[int] = ..., processes: _Optional[int] = ..., cpu_seconds: _Optional[int] = ..., open_files: _Optional[int] = ..., home_mb: _Optional[int] = ..., build: bool = ...) -> None: ...

class BackendRecord(_message.Message):
    __slots__ = ("name", "base_url", "version", "enabled", "key_ref", "headers", "models", "connect_timeout_ms", "request_timeout_ms", "insecure", "info")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    BASE_URL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    KEY_REF_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    INSECURE_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    name: str
    base_url: str
    version: int
    enabled: bool
    key_ref: str
    headers: _containers.ScalarMap[str, str]
    models: _containers.RepeatedScalarFieldContainer[str]
    connect_timeout_ms: int
    request_timeout_ms: int
    insecure: bool
    info: RecordInfo
    def __init__(self, name: _Optional[str] = ..., base_url: _Optional[str] = ..., version: _Optional[int] = ..., enabled: bool = ..., key_ref: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., models: _Optional[_Iterable[str]] = ..., connect_timeout_ms: _Optional[int] = ..., request_timeout_ms: _Optional[int] = ..., insecure: bool = ..., info: _Optional[_Union[RecordInfo, _Mapping[str, object]]] = ...) -> None: ...

class UserRecord(_message.Message):
    __slots__ = ("enabled_server_ids", "read_only", "tool_allowlist", "tool_denylist", "user_id", "version", "display_name", "enabled", "groups", "own", "info")
    ENABLED_SERVER_IDS_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    TOOL_ALLOWLIST_FIELD_NUMBER: _ClassVar[int]
    TOOL_DENYLIST_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    enabled_server_ids: StringList
    read_only: bool
    tool_allowlist: StringList
    tool_denylist: _containers.RepeatedScalarFieldContainer[str]
    user_id: str
    version: int
    display_name: str
    enabled: bool
    groups: _containers.RepeatedScalarFieldContainer[str]
    own: UserFilters
    info: RecordInfo
    def __init__(self, enabled_server_ids: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., read_only: bool = ..., tool_allowlist: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., tool_denylist: _Optional[_Iterable[str]] = ..., user_id: _Optional[str] = ..., version: _Optional[int] = ..., display_name: _Optional[str] = ..., enabled: bool = ..., groups: _Optional[_Iterable[str]] = ..., own: _Optional[_Union[UserFilters, _Mapping[str, object]]] = ..., info: _Optional[_Union[RecordInfo, _Mapping[str, object]]] = ...) -> None: ...

class UserFilters(_message.Message):
    __slots__ = ("enabled_server_ids", "read_only", "tool_allowlist", "tool_denylist")
    ENABLED_SERVER_IDS_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    TOOL_ALLOWLIST_FIELD_NUMBER: _ClassVar[int]
    TOOL_DENYLIST_FIELD_NUMBER: _ClassVar[int]
    enabled_server_ids: StringList
    read_only: bool
    tool_allowlist: StringList
    tool_denylist: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, enabled_server_ids: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., read_only: bool = ..., tool_allowlist: _Optional[_Union[StringList, _Mapping[str, object]]] = ..., tool_denylist: _Optional[_Iterable[str]] = ...) -> None: ...
