from bascule.wire.pb import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListMcpServersRequest(_message.Message):
    __slots__ = ("at_least", "limit", "cursor")
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    at_least: int
    limit: int
    cursor: str
    def __init__(self, at_least: _Optional[int] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListMcpServersResponse(_message.Message):
    __slots__ = ("revision", "servers", "store_id", "mark", "next_cursor")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    revision: int
    servers: _containers.RepeatedCompositeFieldContainer[_records_pb2.McpServerRecord]
    store_id: str
    mark: str
    next_cursor: str
    def __init__(self, revision: _Optional[int] = ..., servers: _Optional[_Iterable[_Union[_records_pb2.McpServerRecord, _Mapping[str, object]]]] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class WatchMcpServersRequest(_message.Message):
    __slots__ = ("since_revision", "store_id", "mark", "include_objects", "send_initial")
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    SEND_INITIAL_FIELD_NUMBER: _ClassVar[int]
    since_revision: int
    store_id: str
    mark: str
    include_objects: bool
    send_initial: bool
    def __init__(self, since_revision: _Optional[int] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., include_objects: bool = ..., send_initial: bool = ...) -> None: ...

class WatchMcpServersResponse(_message.Message):
    __slots__ = ("revision", "upserts", "deletes", "servers", "store_id", "mark", "bookmark", "initial", "partial")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UPSERTS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    revision: int
    upserts: _containers.RepeatedScalarFieldContainer[str]
    deletes: _containers.RepeatedScalarFieldContainer[str]
    servers: _containers.RepeatedCompositeFieldContainer[_records_pb2.McpServerRecord]
    store_id: str
    mark: str
    bookmark: bool
    initial: bool
    partial: bool
    def __init__(self, revision: _Optional[int] = ..., upserts: _Optional[_Iterable[str]] = ..., deletes: _Optional[_Iterable[str]] = ..., servers: _Optional[_Iterable[_Union[_records_pb2.McpServerRecord, _Mapping[str, object]]]] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., bookmark: bool = ..., initial: bool = ..., partial: bool = ...) -> None: ...

class UpsertMcpServerRequest(_message.Message):
    __slots__ = ("server", "expected_revision", "strict")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    server: _records_pb2.McpServerRecord
    expected_revision: int
    strict: bool
    def __init__(self, server: _Optional[_Union[_records_pb2.McpServerRecord, _Mapping[str, object]]] = ..., expected_revision: _Optional[int] = ..., strict: bool = ...) -> None: ...

class UpsertMcpServerResponse(_message.Message):
    __slots__ = ("revision", "changed", "server", "warnings")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    changed: bool
    server: _records_pb2.McpServerRecord
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., changed: bool = ..., server: _Optional[_Union[_records_pb2.McpServerRecord, _Mapping[str, object]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteMcpServerRequest(_message.Message):
    __slots__ = ("server_id", "expected_revision")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    expected_revision: int
    def __init__(self, server_id: _Optional[str] = ..., expected_revision: _Optional[int] = ...) -> None: ...

class DeleteMcpServerResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("at_least", "limit", "cursor")
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    at_least: int
    limit: int
    cursor: str
    def __init__(self, at_least: _Optional[int] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("revision", "tasks", "store_id", "mark", "next_cursor")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    revision: int
    tasks: _containers.RepeatedCompositeFieldContainer[_records_pb2.TaskRecord]
    store_id: str
    mark: str
    next_cursor: str
    def __init__(self, revision: _Optional[int] = ..., tasks: _Optional[_Iterable[_Union[_records_pb2.TaskRecord, _Mapping[str, object]]]] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class WatchTasksRequest(_message.Message):
    __slots__ = ("since_revision", "store_id", "mark", "include_objects", "send_initial")
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    SEND_INITIAL_FIELD_NUMBER: _ClassVar[int]
    since_revision: int
    store_id: str
    mark: str
    include_objects: bool
    send_initial: bool
    def __init__(self, since_revision: _Optional[int] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., include_objects: bool = ..., send_initial: bool = ...) -> None: ...

class WatchTasksResponse(_message.Message):
    __slots__ = ("revision", "upserts", "deletes", "tasks", "store_id", "mark", "bookmark", "initial", "partial")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UPSERTS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    revision: int
    upserts: _containers.RepeatedScalarFieldContainer[str]
    deletes: _containers.RepeatedScalarFieldContainer[str]
    tasks: _containers.RepeatedCompositeFieldContainer[_records_pb2.TaskRecord]
    store_id: str
    mark: str
    bookmark: bool
    initial: bool
    partial: bool
    def __init__(self, revision: _Optional[int] = ..., upserts: _Optional[_Iterable[str]] = ..., deletes: _Optional[_Iterable[str]] = ..., tasks: _Optional[_Iterable[_Union[_records_pb2.TaskRecord, _Mapping[str, object]]]] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., bookmark: bool = ..., initial: bool = ..., partial: bool = ...) -> None: ...

class UpsertTaskRequest(_message.Message):
    __slots__ = ("task", "expected_revision", "strict")
    TASK_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    task: _records_pb2.TaskRecord
    expected_revision: int
    strict: bool
    def __init__(self, task: _Optional[_Union[_records_pb2.TaskRecord, _Mapping[str, object]]] = ..., expected_revision: _Optional[int] = ..., strict: bool = ...) -> None: ...

class UpsertTaskResponse(_message.Message):
    __slots__ = ("revision", "changed", "task", "warnings")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    changed: bool
    task: _records_pb2.TaskRecord
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., changed: bool = ..., task: _Optional[_Union[_records_pb2.TaskRecord, _Mapping[str, object]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteTaskRequest(_message.Message):
    __slots__ = ("task_id", "expected_revision")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    expected_revision: int
    def __init__(self, task_id: _Optional[str] = ..., expected_revision: _Optional[int] = ...) -> None: ...

class DeleteTaskResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class ListProfilesRequest(_message.Message):
    __slots__ = ("at_least", "limit", "cursor")
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    at_least: int
    limit: int
    cursor: str
    def __init__(self, at_least: _Optional[int] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListProfilesResponse(_message.Message):
    __slots__ = ("revision", "profiles", "store_id", "mark", "next_cursor")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    revision: int
    profiles: _containers.RepeatedCompositeFieldContainer[_records_pb2.ProfileRecord]
    store_id: str
    mark: str
    next_cursor: str
    def __init__(self, revision: _Optional[int] = ..., profiles: _Optional[_Iterable[_Union[_records_pb2.ProfileRecord, _Mapping[str, object]]]] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class WatchProfilesRequest(_message.Message):
    __slots__ = ("since_revision", "store_id", "mark", "include_objects", "send_initial")
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    SEND_INITIAL_FIELD_NUMBER: _ClassVar[int]
    since_revision: int
    store_id: str
    mark: str
    include_objects: bool
    send_initial: bool
    def __init__(self, since_revision: _Optional[int] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., include_objects: bool = ..., send_initial: bool = ...) -> None: ...

class WatchProfilesResponse(_message.Message):
    __slots__ = ("revision", "upserts", "deletes", "profiles", "store_id", "mark", "bookmark", "initial", "partial")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UPSERTS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    revision: int
    upserts: _containers.RepeatedScalarFieldContainer[str]
    deletes: _containers.RepeatedScalarFieldContainer[str]
    profiles: _containers.RepeatedCompositeFieldContainer[_records_pb2.ProfileRecord]
    store_id: str
    mark: str
    bookmark: bool
    initial: bool
    partial: bool
    def __init__(self, revision: _Optional[int] = ..., upserts: _Optional[_Iterable[str]] = ..., deletes: _Optional[_Iterable[str]] = ..., profiles: _Optional[_Iterable[_Union[_records_pb2.ProfileRecord, _Mapping[str, object]]]] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., bookmark: bool = ..., initial: bool = ..., partial: bool = ...) -> None: ...

class UpsertProfileRequest(_message.Message):
    __slots__ = ("profile", "expected_revision", "strict")
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    profile: _records_pb2.ProfileRecord
    expected_revision: int
    strict: bool
    def __init__(self, profile: _Optional[_Union[_records_pb2.ProfileRecord, _Mapping[str, object]]] = ..., expected_revision: _Optional[int] = ..., strict: bool = ...) -> None: ...

class UpsertProfileResponse(_message.Message):
    __slots__ = ("revision", "changed", "profile", "warnings")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    changed: bool
    profile: _records_pb2.ProfileRecord
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., changed: bool = ..., profile: _Optional[_Union[_records_pb2.ProfileRecord, _Mapping[str, object]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteProfileRequest(_message.Message):
    __slots__ = ("name", "expected_revision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    expected_revision: int
    def __init__(self, name: _Optional[str] = ..., expected_revision: _Optional[int] = ...) -> None: ...

class DeleteProfileResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class ListBackendsRequest(_message.Message):
    __slots__ = ("at_least", "limit", "cursor")
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    at_least: int
    limit: int
    cursor: str
    def __init__(self, at_least: _Optional[int] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListBackendsResponse(_message.Message):
    __slots__ = ("revision", "backends", "store_id", "mark", "next_cursor")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    BACKENDS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    revision: int
    backends: _containers.RepeatedCompositeFieldContainer[_records_pb2.BackendRecord]
    store_id: str
    mark: str
    next_cursor: str
    def __init__(self, revision: _Optional[int] = ..., backends: _Optional[_Iterable[_Union[_records_pb2.BackendRecord, _Mapping[str, object]]]] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class WatchBackendsRequest(_message.Message):
    __slots__ = ("since_revision", "store_id", "mark", "include_objects", "send_initial")
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    SEND_INITIAL_FIELD_NUMBER: _ClassVar[int]
    since_revision: int
    store_id: str
    mark: str
    include_objects: bool
    send_initial: bool
    def __init__(self, since_revision: _Optional[int] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., include_objects: bool = ..., send_initial: bool = ...) -> None: ...

class WatchBackendsResponse(_message.Message):
    __slots__ = ("revision", "upserts", "deletes", "backends", "store_id", "mark", "bookmark", "initial", "partial")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UPSERTS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    BACKENDS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    revision: int
    upserts: _containers.RepeatedScalarFieldContainer[str]
    deletes: _containers.RepeatedScalarFieldContainer[str]
    backends: _containers.RepeatedCompositeFieldContainer[_records_pb2.BackendRecord]
    store_id: str
    mark: str
    bookmark: bool
    initial: bool
    partial: bool
    def __init__(self, revision: _Optional[int] = ..., upserts: _Optional[_Iterable[str]] = ..., deletes: _Optional[_Iterable[str]] = ..., backends: _Optional[_Iterable[_Union[_records_pb2.BackendRecord, _Mapping[str, object]]]] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., bookmark: bool = ..., initial: bool = ..., partial: bool = ...) -> None: ...

class UpsertBackendRequest(_message.Message):
    __slots__ = ("backend", "expected_revision", "strict")
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    backend: _records_pb2.BackendRecord
    expected_revision: int
    strict: bool
    def __init__(self, backend: _Optional[_Union[_records_pb2.BackendRecord, _Mapping[str, object]]] = ..., expected_revision: _Optional[int] = ..., strict: bool = ...) -> None: ...

class UpsertBackendResponse(_message.Message):
    __slots__ = ("revision", "changed", "backend", "warnings")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    changed: bool
    backend: _records_pb2.BackendRecord
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., changed: bool = ..., backend: _Optional[_Union[_records_pb2.BackendRecord, _Mapping[str, object]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteBackendRequest(_message.Message):
    __slots__ = ("name", "expected_revision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    expected_revision: int
    def __init__(self, name: _Optional[str] = ..., expected_revision: _Optional[int] = ...) -> None: ...

class DeleteBackendResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ("at_least", "limit", "cursor")
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    at_least: int
    limit: int
    cursor: str
    def __init__(self, at_least: _Optional[int] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("revision", "users", "store_id", "mark", "next_cursor")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    revision: int
    users: _containers.RepeatedCompositeFieldContainer[_records_pb2.UserRecord]
    store_id: str
    mark: str
    next_cursor: str
    def __init__(self, revision: _Optional[int] = ..., users: _Optional[_Iterable[_Union[_records_pb2.UserRecord, _Mapping[str, object]]]] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class WatchUsersRequest(_message.Message):
    __slots__ = ("since_revision", "store_id", "mark", "include_objects", "send_initial")
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    SEND_INITIAL_FIELD_NUMBER: _ClassVar[int]
    since_revision: int
    store_id: str
    mark: str
    include_objects: bool
    send_initial: bool
    def __init__(self, since_revision: _Optional[int] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., include_objects: bool = ..., send_initial: bool = ...) -> None: ...

class WatchUsersResponse(_message.Message):
    __slots__ = ("revision", "upserts", "deletes", "users", "store_id", "mark", "bookmark", "initial", "partial")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UPSERTS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    revision: int
    upserts: _containers.RepeatedScalarFieldContainer[str]
    deletes: _containers.RepeatedScalarFieldContainer[str]
    users: _containers.RepeatedCompositeFieldContainer[_records_pb2.UserRecord]
    store_id: str
    mark: str
    bookmark: bool
    initial: bool
    partial: bool
    def __init__(self, revision: _Optional[int] = ..., upserts: _Optional[_Iterable[str]] = ..., deletes: _Optional[_Iterable[str]] = ..., users: _Optional[_Iterable[_Union[_records_pb2.UserRecord, _Mapping[str, object]]]] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., bookmark: bool = ..., initial: bool = ..., partial: bool = ...) -> None: ...

class UpsertUserRequest(_message.Message):
    __slots__ = ("user", "expected_revision", "strict")
    USER_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    user: _records_pb2.UserRecord
    expected_revision: int
    strict: bool
    def __init__(self, user: _Optional[_Union[_records_pb2.UserRecord, _Mapping[str, object]]] = ..., expected_revision: _Optional[int] = ..., strict: bool = ...) -> None: ...

class UpsertUserResponse(_message.Message):
    __slots__ = ("revision", "changed", "user", "warnings")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    changed: bool
    user: _records_pb2.UserRecord
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., changed: bool = ..., user: _Optional[_Union[_records_pb2.UserRecord, _Mapping[str, object]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteUserRequest(_message.Message):
    __slots__ = ("user_id", "expected_revision")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    expected_revision: int
    def __init__(self, user_id: _Optional[str] = ..., expected_revision: _Optional[int] = ...) -> None: ...

class DeleteUserResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class GetPlatformRequest(_message.Message):
    __slots__ = ("at_least",)
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    at_least: int
    def __init__(self, at_least: _Optional[int] = ...) -> None: ...

class GetPlatformResponse(_message.Message):
    __slots__ = ("revision", "platform", "store_id", "mark", "predecessor")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    PREDECESSOR_FIELD_NUMBER: _ClassVar[int]
    revision: int
    platform: _records_pb2.PlatformRecord
    store_id: str
    mark: str
    predecessor: str
    def __init__(self, revision: _Optional[int] = ..., platform: _Optional[_Union[_records_pb2.PlatformRecord, _Mapping[str, object]]] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., predecessor: _Optional[str] = ...) -> None: ...

class WatchPlatformRequest(_message.Message):
    __slots__ = ("since_revision", "store_id", "mark", "include_objects", "send_initial")
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    SEND_INITIAL_FIELD_NUMBER: _ClassVar[int]
    since_revision: int
    store_id: str
    mark: str
    include_objects: bool
    send_initial: bool
    def __init__(self, since_revision: _Optional[int] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., include_objects: bool = ..., send_initial: bool = ...) -> None: ...

class WatchPlatformResponse(_message.Message):
    __slots__ = ("revision", "upserts", "deletes", "platform", "store_id", "mark", "bookmark", "initial", "partial")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UPSERTS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    revision: int
    upserts: _containers.RepeatedScalarFieldContainer[str]
    deletes: _containers.RepeatedScalarFieldContainer[str]
    platform: _containers.RepeatedCompositeFieldContainer[_records_pb2.PlatformRecord]
    store_id: str
    mark: str
    bookmark: bool
    initial: bool
    partial: bool
    def __init__(self, revision: _Optional[int] = ..., upserts: _Optional[_Iterable[str]] = ..., deletes: _Optional[_Iterable[str]] = ..., platform: _Optional[_Iterable[_Union[_records_pb2.PlatformRecord, _Mapping[str, object]]]] = ..., store_id: _Optional[str] = ..., mark: _Optional[str] = ..., bookmark: bool = ..., initial: bool = ..., partial: bool = ...) -> None: ...

class UpsertPlatformRequest(_message.Message):
    __slots__ = ("platform", "expected_revision", "strict")
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    platform: _records_pb2.PlatformRecord
    expected_revision: int
    strict: bool
    def __init__(self, platform: _Optional[_Union[_records_pb2.PlatformRecord, _Mapping[str, object]]] = ..., expected_revision: _Optional[int] = ..., strict: bool = ...) -> None: ...

class UpsertPlatformResponse(_message.Message):
    __slots__ = ("revision", "changed", "platform", "warnings")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    changed: bool
    platform: _records_pb2.PlatformRecord
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., changed: bool = ..., platform: _Optional[_Union[_records_pb2.PlatformRecord, _Mapping[str, object]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DeletePlatformRequest(_message.Message):
    __slots__ = ("expected_revision",)
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    expected_revision: int
    def __init__(self, expected_revision: _Optional[int] = ...) -> None: ...

class DeletePlatformResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...
