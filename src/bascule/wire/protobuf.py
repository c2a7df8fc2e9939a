"""Plain values as protobuf messages and back, by one rule for all: no field is named here.

Fields have the same names and the same values in both, with these exceptions: ``StringList`` is a
list, ``Json`` is any value, and a message that is one choice between a word and a table is either.
A repeated field is a list and a map a table, also when they are empty; any other field that is
absent in the one is absent in the other. The rule is read off the messages' descriptors, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableSequence
from functools import cache
from itertools import islice
from types import NoneType
from typing import Any, TypeAlias, TypeVar, get_args

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from msgspec import Struct

from bascule.errors import InvalidRecord, refuse_any
from bascule.model.json import JsonObject, JsonValue
from bascule.model.kinds import Kind
from bascule.wire.api.records import Beside, Plain
from bascule.wire.collector import MAX_LISTED
from bascule.wire.merge_patch import merge_patch
from bascule.wire.pb import records_pb2 as pb
from bascule.wire.strict_json import StrictJsonError, dumps, loads

M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=Struct)
RecordMessage: TypeAlias = (
    pb.McpServerRecord
    | pb.TaskRecord
    | pb.ProfileRecord
    | pb.PlatformRecord
    | pb.BackendRecord
    | pb.UserRecord
)
Problems: TypeAlias = MutableSequence[str]
#: From plain values to what a message's constructor takes; from a message's value and its path.
_Write: TypeAlias = Callable[[Any], Any]
_Read: TypeAlias = Callable[[Any, str, Problems], Any]

MESSAGES: Mapping[Kind, type[RecordMessage]] = {
    "server": pb.McpServerRecord,
    "task": pb.TaskRecord,
    "profile": pb.ProfileRecord,
    "platform": pb.PlatformRecord,
    "backend": pb.BackendRecord,
    "user": pb.UserRecord,
}
_INFO = "info"


# --- records


def record_message(
    kind: Kind, plain: JsonObject, *, beside: Beside | None = None, extra: JsonObject | None = None
) -> RecordMessage:
    """Return a record's own fields, masked or not, as its message.

    ``beside`` is what is shown beside them, ``extra`` are fields that this version does not know.
    """
    info: dict[str, Any] = {} if beside is None else msgspec.structs.asdict(beside)
    if extra:
        info["extra"] = extra
    return message_of(MESSAGES[kind], {**plain, _INFO: info} if info else plain)


def record_plain(message: RecordMessage, *, lenient: bool = False) -> Plain:
    """Return what a message says of a record as plain values, fields of ``extra`` among them.

    Raise InvalidRecord for fields that are not known, each by its path and number, unless
    ``lenient``: a newer registry may know more than its reader. The values are yet to be checked.
    """
    problems: list[str] = [] if lenient else [*unknown_fields(message)]
    plain = _shape(message.DESCRIPTOR).read(message, "", problems)
    refuse_any(problems)
    info = plain.pop(_INFO, None)
    extra = info["extra"] if info else None
    return {**merge_patch(plain, extra)} if extra else plain


# --- other structs


def struct_message(cls: type[M], struct: Struct) -> M:
    """Return a struct as the message that has its fields."""
    return message_of(cls, msgspec.to_builtins(struct, builtin_types=(bytes,)))


def struct_of(cls: type[S], message: Message) -> S:
    """Read a struct from the message that has its fields; raise InvalidRecord."""
    problems: list[str] = []
    plain = _shape(message.DESCRIPTOR).read(message, "", problems)
    refuse_any(problems)
    try:
        return msgspec.convert(_completed(cls, plain), cls)
    except msgspec.ValidationError as error:
        raise InvalidRecord([str(error)]) from error


def _completed(cls: type[Struct], plain: dict[str, Any]) -> dict[str, Any]:
    """Put None into plain values where a struct wants to be told that there is nothing."""
    for field in _fields(cls):
        name, kinds = field.encode_name, get_args(field.type) or (field.type,)
        if name not in plain:
            if field.required and NoneType in kinds:
                plain[name] = None
        elif structs := [one for one in kinds if isinstance(one, type) and issubclass(one, Struct)]:
            _completed(structs[0], plain[name])
    return plain


_fields = cache(msgspec.structs.fields)


# --- any message


def message_of(cls: type[M], plain: JsonObject) -> M:
    """Return plain values as a message; None is nothing. Raise ValueError for what has no place."""
    return cls(**_shape(cls.DESCRIPTOR).write(plain))


def unknown_fields(message: Message) -> Iterator[str]:
    """Yield a problem for each field of a message that its type does not have, up to a number."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    if known.ByteSize() != message.ByteSize():  # to look for them takes longer
        found = dict.fromkeys(islice(_unknown(message, ""), MAX_LISTED))
        yield from (f"{path}: unknown field" for path in found)


def _unknown(message: Message, path: str) -> Iterator[str]:
    for field in UnknownFieldSet(message):
        yield f"{path}{field.field_number}"
    for field, value in message.ListFields():
        where = f"{path}{field.name}"
        for place, inner in _messages(field, value):
            yield from _unknown(inner, f"{where}{place}.")


def _messages(field: FieldDescriptor, value: Any) -> Iterator[tuple[str, Message]]:
    """Yield the messages in a field, with their places there."""
    entry = _map_value(field)
    if entry is not None:
        if entry.message_type is not None:
            yield from ((f".{key}", value[key]) for key in sorted(value))
    elif field.message_type is not None:
        if field.is_repeated:
            yield from ((f"[{place}]", inner) for place, inner in enumerate(value))
        else:
            yield "", value


# --- the rule


class _Shape(Struct, frozen=True):
    """How the fields of a message are written and read, by name."""

    #: Those alone that are not written as they are.
    writers: Mapping[str, _Write]
    readers: Mapping[str, _Read]
    #: What stands for a field that is never absent.
    blanks: tuple[tuple[str, Callable[[], Any]], ...]

    def write(self, plain: JsonObject) -> dict[str, Any]:
        """Return plain values as the message's constructor takes them."""
        values = dict(plain)
        for name, write in self.writers.items():
            if values.get(name) is not None:
                values[name] = write(values[name])
        return values

    def read(self, message: Message, path: str, problems: Problems) -> dict[str, Any]:
        """Return a message as plain values; what cannot be read is a problem."""
        plain = {name: blank() for name, blank in self.blanks}
        for field, value in message.ListFields():
            name = field.name
            plain[name] = self.readers[name](value, f"{path}{name}", problems)
        return plain


@cache
def _shape(descriptor: Descriptor) -> _Shape:
    writers = {field.name: _writer(field) for field in descriptor.fields}
    return _Shape(
        writers={name: write for name, write in writers.items() if write is not None},
        readers={field.name: _reader(field) for field in descriptor.fields},
        blanks=tuple(
            (field.name, _blank(field)) for field in descriptor.fields if not field.has_presence
        ),
    )


def _blank(field: FieldDescriptor) -> Callable[[], Any]:
    if field.is_repeated:
        return list if _map_value(field) is None else dict
    default = field.default_value
    return lambda: default


def _map_value(field: FieldDescriptor) -> FieldDescriptor | None:
    """Return what the values of a map are; None for what is no map."""
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["value"]


# --- writing


def _writer(field: FieldDescriptor) -> _Write | None:
    entry = _map_value(field)
    write = _message_writer(field.message_type if entry is None else entry.message_type)
    if write is not None and entry is not None:
        return lambda value: {key: write(item) for key, item in value.items()}
    if write is not None and field.is_repeated:
        return lambda value: [write(item) for item in value]
    return write


def _message_writer(kind: Descriptor | None) -> _Write | None:
    """Return how a message is written; None for what is written as it is."""
    if kind is None:
        return None
    if kind is pb.StringList.DESCRIPTOR:
        return lambda value: {"values": value}
    if kind is pb.Json.DESCRIPTOR:
        return lambda value: {"text": dumps(value).decode()}
    if choice := _choice(kind):
        word, table = choice
        write = _shape(table.message_type).write
        return lambda v: {word.name: v} if isinstance(v, str) else {table.name: write(v)}
    shape = _shape(kind)
    return shape.write if shape.writers else None


def _choice(kind: Descriptor) -> tuple[FieldDescriptor, FieldDescriptor] | None:
    """Return the word and the table of a message that is a choice between them."""
    if len(kind.oneofs) != 1 or len(kind.fields) != len(kind.oneofs[0].fields) or not kind.fields:
        return None
    word, table = sorted(kind.fields, key=lambda field: field.message_type is not None)
    return word, table


# --- reading


def _reader(field: FieldDescriptor) -> _Read:
    entry = _map_value(field)
    if entry is not None:
        return _map_reader(_message_reader(entry.message_type))
    read = _message_reader(field.message_type)
    return _list_reader(read) if field.is_repeated else read or _same


def _same(value: Any, path: str, problems: Problems) -> Any:
    del path, problems
    return value


def _map_reader(read: _Read | None) -> _Read:
    """Return how a map is read: in the order of its keys, as it has none of its own."""
    if read is None:
        return lambda value, path, problems: dict(sorted(value.items()))
    return lambda value, path, problems: {
        key: read(value[key], f"{path}.{key}", problems) for key in sorted(value)
    }


def _list_reader(read: _Read | None) -> _Read:
    if read is None:
        return lambda value, path, problems: list(value)
    return lambda value, path, problems: [
        read(item, f"{path}[{place}]", problems) for place, item in enumerate(value)
    ]


def _message_reader(kind: Descriptor | None) -> _Read | None:
    if kind is None:
        return None
    if kind is pb.StringList.DESCRIPTOR:
        return lambda value, path, problems: list(value.values)
    if kind is pb.Json.DESCRIPTOR:
        return _read_json
    if choice := _choice(kind):
        return _choice_reader(*choice)
    shape = _shape(kind)
    return lambda value, path, problems: shape.read(value, f"{path}.", problems)


def _read_json(value: pb.Json, path: str, problems: Problems) -> JsonValue:
    try:
        return loads(value.text.encode())
    except StrictJsonError as error:
        problems.append(f"{path}: is not valid JSON: {error}")
        return None


def _choice_reader(word: FieldDescriptor, table: FieldDescriptor) -> _Read:
    shape = _shape(table.message_type)

    def read(value: Message, path: str, problems: Problems) -> Any:
        if value.HasField(word.name):
            return getattr(value, word.name)
        if value.HasField(table.name):
            return shape.read(getattr(value, table.name), f"{path}.", problems)
        problems.append(f"{path}: needs a {word.name} or a {table.name}")
        return None

    return read
