from bascule.wire.pb import records_pb2 as _records_pb2
from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Status(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping[str, object]]]] = ...) -> None: ...

class StoreChanged(_message.Message):
    __slots__ = ("case", "store_id", "revision", "given_store_id", "given_revision")
    CASE_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    GIVEN_STORE_ID_FIELD_NUMBER: _ClassVar[int]
    GIVEN_REVISION_FIELD_NUMBER: _ClassVar[int]
    case: str
    store_id: str
    revision: int
    given_store_id: str
    given_revision: int
    def __init__(self, case: _Optional[str] = ..., store_id: _Optional[str] = ..., revision: _Optional[int] = ..., given_store_id: _Optional[str] = ..., given_revision: _Optional[int] = ...) -> None: ...

class BelowFloor(_message.Message):
    __slots__ = ("revision", "compacted_revision")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    compacted_revision: int
    def __init__(self, revision: _Optional[int] = ..., compacted_revision: _Optional[int] = ...) -> None: ...

class AheadOfHead(_message.Message):
    __slots__ = ("revision", "head")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    revision: int
    head: int
    def __init__(self, revision: _Optional[int] = ..., head: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("code", "field", "expected", "problems", "details")
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _records_pb2.Json
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_records_pb2.Json, _Mapping[str, object]]] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: str
    field: str
    expected: str
    problems: _containers.RepeatedScalarFieldContainer[str]
    details: _containers.MessageMap[str, _records_pb2.Json]
    def __init__(self, code: _Optional[str] = ..., field: _Optional[str] = ..., expected: _Optional[str] = ..., problems: _Optional[_Iterable[str]] = ..., details: _Optional[_Mapping[str, _records_pb2.Json]] = ...) -> None: ...
