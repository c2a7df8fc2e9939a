from bascule.wire.pb import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Position(_message.Message):
    __slots__ = ("store_id", "revision", "mark")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    revision: int
    mark: str
    def __init__(self, store_id: _Optional[str] = ..., revision: _Optional[int] = ..., mark: _Optional[str] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("since_revision", "store_id", "mark", "tokens_version", "process", "version", "part", "secrets_version", "works")
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    TOKENS_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    SECRETS_VERSION_FIELD_NUMBER: _ClassVar[int]
    WORKS_FIELD_NUMBER: _ClassVar[int]
    since_revision: int
    store_id: str
    mark: str
    tokens_version: str
    process: str
    version: str
    part: str
    secrets_version: str
    works: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, since_revision: _Optional[int] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., tokens_version: _Optional[str] = ..., process: _Optional[str] = ..., version: _Optional[str] = ..., part: _Optional[str] = ..., secrets_version: _Optional[str] = ..., works: _Optional[_Iterable[str]] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("welcome", "snapshot", "change", "tokens", "secrets", "work", "bookmark")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    snapshot: SnapshotPart
    change: Change
    tokens: ClientTokens
    secrets: SecretsChanged
    work: Work
    bookmark: Position
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping[str, object]]] = ..., snapshot: _Optional[_Union[SnapshotPart, _Mapping[str, object]]] = ..., change: _Optional[_Union[Change, _Mapping[str, object]]] = ..., tokens: _Optional[_Union[ClientTokens, _Mapping[str, object]]] = ..., secrets: _Optional[_Union[SecretsChanged, _Mapping[str, object]]] = ..., work: _Optional[_Union[Work, _Mapping[str, object]]] = ..., bookmark: _Optional[_Union[Position, _Mapping[str, object]]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("node", "bookmark_ms", "assignment", "keys", "now")
    class KeysEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_MS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    node: str
    bookmark_ms: int
    assignment: Assignment
    keys: _containers.ScalarMap[str, bytes]
    now: float
    def __init__(self, node: _Optional[str] = ..., bookmark_ms: _Optional[int] = ..., assignment: _Optional[_Union[Assignment, _Mapping[str, object]]] = ..., keys: _Optional[_Mapping[str, bytes]] = ..., now: _Optional[float] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("tasks", "labels")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    tasks: _records_pb2.StringList
    labels: _records_pb2.StringList
    def __init__(self, tasks: _Optional[_Union[_records_pb2.StringList, _Mapping[str, object]]] = ..., labels: _Optional[_Union[_records_pb2.StringList, _Mapping[str, object]]] = ...) -> None: ...

class SnapshotPart(_message.Message):
    __slots__ = ("position", "predecessor", "records", "partial", "part")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PREDECESSOR_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    position: Position
    predecessor: str
    records: _containers.RepeatedCompositeFieldContainer[Record]
    partial: bool
    part: str
    def __init__(self, position: _Optional[_Union[Position, _Mapping[str, object]]] = ..., predecessor: _Optional[str] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping[str, object]]]] = ..., partial: bool = ..., part: _Optional[str] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("position", "upserts", "deletes", "partial", "since", "part")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    UPSERTS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    position: Position
    upserts: _containers.RepeatedCompositeFieldContainer[Record]
    deletes: _containers.RepeatedCompositeFieldContainer[RecordKey]
    partial: bool
    since: int
    part: str
    def __init__(self, position: _Optional[_Union[Position, _Mapping[str, object]]] = ..., upserts: _Optional[_Iterable[_Union[Record, _Mapping[str, object]]]] = ..., deletes: _Optional[_Iterable[_Union[RecordKey, _Mapping[str, object]]]] = ..., partial: bool = ..., since: _Optional[int] = ..., part: _Optional[str] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("server", "task", "profile", "platform", "backend", "user")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    server: _records_pb2.McpServerRecord
    task: _records_pb2.TaskRecord
    profile: _records_pb2.ProfileRecord
    platform: _records_pb2.PlatformRecord
    backend: _records_pb2.BackendRecord
    user: _records_pb2.UserRecord
    def __init__(self, server: _Optional[_Union[_records_pb2.McpServerRecord, _Mapping[str, object]]] = ..., task: _Optional[_Union[_records_pb2.TaskRecord, _Mapping[str, object]]] = ..., profile: _Optional[_Union[_records_pb2.ProfileRecord, _Mapping[str, object]]] = ..., platform: _Optional[_Union[_records_pb2.PlatformRecord, _Mapping[str, object]]] = ..., backend: _Optional[_Union[_records_pb2.BackendRecord, _Mapping[str, object]]] = ..., user: _Optional[_Union[_records_pb2.UserRecord, _Mapping[str, object]]] = ...) -> None: ...

class RecordKey(_message.Message):
    __slots__ = ("kind", "key")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    kind: str
    key: str
    def __init__(self, kind: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class ClientTokens(_message.Message):
    __slots__ = ("version", "whole", "upserts", "deletes", "partial")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    UPSERTS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    version: str
    whole: bool
    upserts: _containers.RepeatedCompositeFieldContainer[ClientToken]
    deletes: _containers.RepeatedScalarFieldContainer[str]
    partial: bool
    def __init__(self, version: _Optional[str] = ..., whole: bool = ..., upserts: _Optional[_Iterable[_Union[ClientToken, _Mapping[str, object]]]] = ..., deletes: _Optional[_Iterable[str]] = ..., partial: bool = ...) -> None: ...

class ClientToken(_message.Message):
    __slots__ = ("id", "name", "role", "task_id", "person", "created_at", "expires_at", "digest", "acts_for_users", "made_by", "tasks")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PERSON_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ACTS_FOR_USERS_FIELD_NUMBER: _ClassVar[int]
    MADE_BY_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    role: str
    task_id: str
    person: str
    created_at: float
    expires_at: float
    digest: bytes
    acts_for_users: bool
    made_by: str
    tasks: _records_pb2.StringList
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[str] = ..., task_id: _Optional[str] = ..., person: _Optional[str] = ..., created_at: _Optional[float] = ..., expires_at: _Optional[float] = ..., digest: _Optional[bytes] = ..., acts_for_users: bool = ..., made_by: _Optional[str] = ..., tasks: _Optional[_Union[_records_pb2.StringList, _Mapping[str, object]]] = ...) -> None: ...

class SecretsChanged(_message.Message):
    __slots__ = ("names", "version")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    version: str
    def __init__(self, names: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ...) -> None: ...

class Work(_message.Message):
    __slots__ = ("id", "timeout_ms", "test", "try_out", "preview", "cancel")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    TRY_OUT_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    id: str
    timeout_ms: int
    test: TestServer
    try_out: TryOut
    preview: PreviewTools
    cancel: CancelWork
    def __init__(self, id: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., test: _Optional[_Union[TestServer, _Mapping[str, object]]] = ..., try_out: _Optional[_Union[TryOut, _Mapping[str, object]]] = ..., preview: _Optional[_Union[PreviewTools, _Mapping[str, object]]] = ..., cancel: _Optional[_Union[CancelWork, _Mapping[str, object]]] = ...) -> None: ...

class TestServer(_message.Message):
    __slots__ = ("server_id",)
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    def __init__(self, server_id: _Optional[str] = ...) -> None: ...

class TryOut(_message.Message):
    __slots__ = ("server",)
    SERVER_FIELD_NUMBER: _ClassVar[int]
    server: _records_pb2.McpServerRecord
    def __init__(self, server: _Optional[_Union[_records_pb2.McpServerRecord, _Mapping[str, object]]] = ...) -> None: ...

class PreviewTools(_message.Message):
    __slots__ = ("server_id",)
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    def __init__(self, server_id: _Optional[str] = ...) -> None: ...

class CancelWork(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("state", "reason", "revision", "servers")
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    state: str
    reason: str
    revision: int
    servers: _containers.RepeatedCompositeFieldContainer[ServerStatus]
    def __init__(self, state: _Optional[str] = ..., reason: _Optional[str] = ..., revision: _Optional[int] = ..., servers: _Optional[_Iterable[_Union[ServerStatus, _Mapping[str, object]]]] = ...) -> None: ...

class ReportResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class ServerStatus(_message.Message):
    __slots__ = ("server_id", "state", "trouble", "last_error", "tool_count", "latency_ms", "average_latency_ms", "reconnects", "starting", "sandbox")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    TOOL_COUNT_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    RECONNECTS_FIELD_NUMBER: _ClassVar[int]
    STARTING_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    state: str
    trouble: str
    last_error: str
    tool_count: int
    latency_ms: float
    average_latency_ms: float
    reconnects: int
    starting: str
    sandbox: Standing
    def __init__(self, server_id: _Optional[str] = ..., state: _Optional[str] = ..., trouble: _Optional[str] = ..., last_error: _Optional[str] = ..., tool_count: _Optional[int] = ..., latency_ms: _Optional[float] = ..., average_latency_ms: _Optional[float] = ..., reconnects: _Optional[int] = ..., starting: _Optional[str] = ..., sandbox: _Optional[_Union[Standing, _Mapping[str, object]]] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("asked", "in_force", "why")
    ASKED_FIELD_NUMBER: _ClassVar[int]
    IN_FORCE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    asked: str
    in_force: str
    why: str
    def __init__(self, asked: _Optional[str] = ..., in_force: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class FinishRequest(_message.Message):
    __slots__ = ("id", "step", "trial", "previews", "failure", "definitions")
    ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    PREVIEWS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    step: TrialStep
    trial: Trial
    previews: ToolPreviews
    failure: Failure
    definitions: _containers.RepeatedCompositeFieldContainer[_records_pb2.Json]
    def __init__(self, id: _Optional[str] = ..., step: _Optional[_Union[TrialStep, _Mapping[str, object]]] = ..., trial: _Optional[_Union[Trial, _Mapping[str, object]]] = ..., previews: _Optional[_Union[ToolPreviews, _Mapping[str, object]]] = ..., failure: _Optional[_Union[Failure, _Mapping[str, object]]] = ..., definitions: _Optional[_Iterable[_Union[_records_pb2.Json, _Mapping[str, object]]]] = ...) -> None: ...

class FinishResponse(_message.Message):
    __slots__ = ("wanted",)
    WANTED_FIELD_NUMBER: _ClassVar[int]
    wanted: bool
    def __init__(self, wanted: bool = ...) -> None: ...

class TrialStep(_message.Message):
    __slots__ = ("step", "ok", "duration_ms", "message")
    STEP_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    step: str
    ok: bool
    duration_ms: float
    message: str
    def __init__(self, step: _Optional[str] = ..., ok: bool = ..., duration_ms: _Optional[float] = ..., message: _Optional[str] = ...) -> None: ...

class Trial(_message.Message):
    __slots__ = ("ok", "duration_ms", "protocol", "tool_count", "tools", "error", "steps", "stderr", "missed")
    OK_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TOOL_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    duration_ms: float
    protocol: str
    tool_count: int
    tools: _containers.RepeatedScalarFieldContainer[str]
    error: str
    steps: _containers.RepeatedCompositeFieldContainer[TrialStep]
    stderr: _containers.RepeatedScalarFieldContainer[str]
    missed: _containers.RepeatedCompositeFieldContainer[Missed]
    def __init__(self, ok: bool = ..., duration_ms: _Optional[float] = ..., protocol: _Optional[str] = ..., tool_count: _Optional[int] = ..., tools: _Optional[_Iterable[str]] = ..., error: _Optional[str] = ..., steps: _Optional[_Iterable[_Union[TrialStep, _Mapping[str, object]]]] = ..., stderr: _Optional[_Iterable[str]] = ..., missed: _Optional[_Iterable[_Union[Missed, _Mapping[str, object]]]] = ...) -> None: ...

class Missed(_message.Message):
    __slots__ = ("field", "value", "wanted")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    field: str
    value: str
    wanted: str
    def __init__(self, field: _Optional[str] = ..., value: _Optional[str] = ..., wanted: _Optional[str] = ...) -> None: ...

class ToolPreviews(_message.Message):
    __slots__ = ("server_id", "tools")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    tools: _containers.RepeatedCompositeFieldContainer[ToolPreview]
    def __init__(self, server_id: _Optional[str] = ..., tools: _Optional[_Iterable[_Union[ToolPreview, _Mapping[str, object]]]] = ...) -> None: ...

class ToolPreview(_message.Message):
    __slots__ = ("tool", "name", "allowed", "layer", "reason", "claims_read_only")
    TOOL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    tool: str
    name: str
    allowed: bool
    layer: str
    reason: str
    claims_read_only: bool
    def __init__(self, tool: _Optional[str] = ..., name: _Optional[str] = ..., allowed: bool = ..., layer: _Optional[str] = ..., reason: _Optional[str] = ..., claims_read_only: bool = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ResolveSecretRequest(_message.Message):
    __slots__ = ("name", "kind", "id", "digest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    id: str
    digest: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., id: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class ResolveSecretResponse(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class AskRequest(_message.Message):
    __slots__ = ("request", "wait_ms")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    request: ApprovalRequest
    wait_ms: int
    def __init__(self, request: _Optional[_Union[ApprovalRequest, _Mapping[str, object]]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class ApprovalRequest(_message.Message):
    __slots__ = ("request_id", "session_id", "caller", "task_id", "server", "tool", "arguments", "arguments_digest", "definition_digest", "revision", "rule", "policy_digest", "person", "token_id", "maker", "payload", "definition", "approval_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    POLICY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PERSON_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    MAKER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    session_id: str
    caller: str
    task_id: str
    server: str
    tool: str
    arguments: _records_pb2.Json
    arguments_digest: str
    definition_digest: str
    revision: int
    rule: str
    policy_digest: str
    person: str
    token_id: str
    maker: str
    payload: bytes
    definition: _records_pb2.Json
    approval_id: str
    def __init__(self, request_id: _Optional[str] = ..., session_id: _Optional[str] = ..., caller: _Optional[str] = ..., task_id: _Optional[str] = ..., server: _Optional[str] = ..., tool: _Optional[str] = ..., arguments: _Optional[_Union[_records_pb2.Json, _Mapping[str, object]]] = ..., arguments_digest: _Optional[str] = ..., definition_digest: _Optional[str] = ..., revision: _Optional[int] = ..., rule: _Optional[str] = ..., policy_digest: _Optional[str] = ..., person: _Optional[str] = ..., token_id: _Optional[str] = ..., maker: _Optional[str] = ..., payload: _Optional[bytes] = ..., definition: _Optional[_Union[_records_pb2.Json, _Mapping[str, object]]] = ..., approval_id: _Optional[str] = ...) -> None: ...

class AskResponse(_message.Message):
    __slots__ = ("approved", "denied", "waiting", "unasked", "unanswered")
    APPROVED_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    UNASKED_FIELD_NUMBER: _ClassVar[int]
    UNANSWERED_FIELD_NUMBER: _ClassVar[int]
    approved: Approved
    denied: Denied
    waiting: Waiting
    unasked: Unasked
    unanswered: Unanswered
    def __init__(self, approved: _Optional[_Union[Approved, _Mapping[str, object]]] = ..., denied: _Optional[_Union[Denied, _Mapping[str, object]]] = ..., waiting: _Optional[_Union[Waiting, _Mapping[str, object]]] = ..., unasked: _Optional[_Union[Unasked, _Mapping[str, object]]] = ..., unanswered: _Optional[_Union[Unanswered, _Mapping[str, object]]] = ...) -> None: ...

class Approved(_message.Message):
    __slots__ = ("call", "approval_id")
    CALL_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    call: ExactCall
    approval_id: str
    def __init__(self, call: _Optional[_Union[ExactCall, _Mapping[str, object]]] = ..., approval_id: _Optional[str] = ...) -> None: ...

class Denied(_message.Message):
    __slots__ = ("reason", "approval_id")
    REASON_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    reason: str
    approval_id: str
    def __init__(self, reason: _Optional[str] = ..., approval_id: _Optional[str] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("approval_id", "expires_at")
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    approval_id: str
    expires_at: float
    def __init__(self, approval_id: _Optional[str] = ..., expires_at: _Optional[float] = ...) -> None: ...

class Unasked(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Unanswered(_message.Message):
    __slots__ = ("code", "message", "retry_after")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    retry_after: float
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., retry_after: _Optional[float] = ...) -> None: ...

class ExactCall(_message.Message):
    __slots__ = ("task_id", "server_id", "tool_name", "arguments_digest", "definition_digest", "policy_digest", "rule", "person", "caller", "token_id")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    POLICY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    PERSON_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    server_id: str
    tool_name: str
    arguments_digest: str
    definition_digest: str
    policy_digest: str
    rule: str
    person: str
    caller: str
    token_id: str
    def __init__(self, task_id: _Optional[str] = ..., server_id: _Optional[str] = ..., tool_name: _Optional[str] = ..., arguments_digest: _Optional[str] = ..., definition_digest: _Optional[str] = ..., policy_digest: _Optional[str] = ..., rule: _Optional[str] = ..., person: _Optional[str] = ..., caller: _Optional[str] = ..., token_id: _Optional[str] = ...) -> None: ...

class ClaimRequest(_message.Message):
    __slots__ = ("approval_id", "call", "intent")
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    approval_id: str
    call: ExactCall
    intent: bytes
    def __init__(self, approval_id: _Optional[str] = ..., call: _Optional[_Union[ExactCall, _Mapping[str, object]]] = ..., intent: _Optional[bytes] = ...) -> None: ...

class ClaimResponse(_message.Message):
    __slots__ = ("refusal",)
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    refusal: str
    def __init__(self, refusal: _Optional[str] = ...) -> None: ...

class GetApprovalRequest(_message.Message):
    __slots__ = ("approval_id", "wait_ms")
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    approval_id: str
    wait_ms: int
    def __init__(self, approval_id: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class GetApprovalResponse(_message.Message):
    __slots__ = ("approval",)
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    approval: Approval
    def __init__(self, approval: _Optional[_Union[Approval, _Mapping[str, object]]] = ...) -> None: ...

class Approval(_message.Message):
    __slots__ = ("id", "state", "call", "session_id", "request_id", "revision", "maker", "asked_at", "expires_at", "digest", "decided", "reason", "claimed_by", "told", "node")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MAKER_FIELD_NUMBER: _ClassVar[int]
    ASKED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_BY_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    call: ExactCall
    session_id: str
    request_id: str
    revision: int
    maker: str
    asked_at: float
    expires_at: float
    digest: str
    decided: Decided
    reason: str
    claimed_by: str
    told: bool
    node: str
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., call: _Optional[_Union[ExactCall, _Mapping[str, object]]] = ..., session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., revision: _Optional[int] = ..., maker: _Optional[str] = ..., asked_at: _Optional[float] = ..., expires_at: _Optional[float] = ..., digest: _Optional[str] = ..., decided: _Optional[_Union[Decided, _Mapping[str, object]]] = ..., reason: _Optional[str] = ..., claimed_by: _Optional[str] = ..., told: bool = ..., node: _Optional[str] = ...) -> None: ...

class Decided(_message.Message):
    __slots__ = ("verb", "by", "token_id", "person", "at", "reason", "self_approved")
    VERB_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    PERSON_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SELF_APPROVED_FIELD_NUMBER: _ClassVar[int]
    verb: str
    by: str
    token_id: str
    person: str
    at: float
    reason: str
    self_approved: bool
    def __init__(self, verb: _Optional[str] = ..., by: _Optional[str] = ..., token_id: _Optional[str] = ..., person: _Optional[str] = ..., at: _Optional[float] = ..., reason: _Optional[str] = ..., self_approved: bool = ...) -> None: ...

class WithdrawRequest(_message.Message):
    __slots__ = ("approval_id",)
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    approval_id: str
    def __init__(self, approval_id: _Optional[str] = ...) -> None: ...

class WithdrawResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("before", "rows", "anchors", "ledger", "journal")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ANCHORS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    before: bytes
    rows: _containers.RepeatedCompositeFieldContainer[LedgerRow]
    anchors: _containers.RepeatedScalarFieldContainer[bytes]
    ledger: str
    journal: int
    def __init__(self, before: _Optional[bytes] = ..., rows: _Optional[_Iterable[_Union[LedgerRow, _Mapping[str, object]]]] = ..., anchors: _Optional[_Iterable[bytes]] = ..., ledger: _Optional[str] = ..., journal: _Optional[int] = ...) -> None: ...

class LedgerRow(_message.Message):
    __slots__ = ("number", "journal", "place", "event", "hash")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    number: int
    journal: int
    place: int
    event: bytes
    hash: bytes
    def __init__(self, number: _Optional[int] = ..., journal: _Optional[int] = ..., place: _Optional[int] = ..., event: _Optional[bytes] = ..., hash: _Optional[bytes] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("number", "hash", "anchored")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    ANCHORED_FIELD_NUMBER: _ClassVar[int]
    number: int
    hash: bytes
    anchored: int
    def __init__(self, number: _Optional[int] = ..., hash: _Optional[bytes] = ..., anchored: _Optional[int] = ...) -> None: ...
