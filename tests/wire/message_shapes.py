"""Whether a message can carry all that a struct can hold: field by field, type by type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from msgspec import NODEFAULT, inspect

from bascule.wire.pb.records_pb2 import Json, StringList

#: What of a message is no field of the struct.
BESIDE = frozenset({"info"})
_SCALARS: Mapping[type[inspect.Type], tuple[int, ...]] = {
    inspect.BoolType: (FieldDescriptor.TYPE_BOOL,),
    inspect.IntType: (FieldDescriptor.TYPE_INT64,),
    inspect.FloatType: (FieldDescriptor.TYPE_DOUBLE,),
    inspect.StrType: (FieldDescriptor.TYPE_STRING,),
    inspect.BytesType: (FieldDescriptor.TYPE_BYTES,),
    inspect.LiteralType: (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_INT32),
}


def complaints(cls: type[Any], message: Any, path: str = "") -> Iterator[str]:
    """Yield what a message, given by its descriptor, lacks or has beyond a struct."""
    struct = inspect.type_info(cls)
    assert isinstance(struct, inspect.StructType)
    fields = {field.encode_name: field for field in struct.fields}
    places = {field.name: field for field in message.fields if field.name not in BESIDE}
    for name in sorted(fields.keys() ^ places.keys()):
        yield f"{path}{name}: is not in {'the message' if name in fields else 'the struct'}"
    for name in sorted(fields.keys() & places.keys()):
        yield from _field(fields[name], places[name], f"{path}{name}")


def _field(field: inspect.Field, into: FieldDescriptor, path: str) -> Iterator[str]:
    types = list(_members(field.type))
    can_be_absent = any(isinstance(one, inspect.NoneType) for one in types)
    kinds = [one for one in types if not isinstance(one, inspect.NoneType)]
    if isinstance(kinds[0], inspect.VarTupleType):
        lists = can_be_absent or field.default not in ((), NODEFAULT)
        if lists and into.message_type is not StringList.DESCRIPTOR:
            yield f"{path}: absent and empty are the same in the message"
    elif not isinstance(kinds[0], inspect.DictType) and not into.has_presence:
        yield f"{path}: cannot be absent in the message"
    yield from _value(kinds, into, path)


def _members(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        yield from _members(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _members(one)
    else:
        yield kind


def _value(kinds: list[inspect.Type], into: FieldDescriptor, path: str) -> Iterator[str]:
    kind, message = kinds[0], into.message_type
    if message is Json.DESCRIPTOR:
        return
    if len(kinds) > 1:
        yield from _choice(kinds, message, path)
    elif isinstance(kind, inspect.StructType):
        yield from _table(kind, message, path)
    elif isinstance(kind, inspect.VarTupleType):
        wrapped = message is StringList.DESCRIPTOR
        values = StringList.DESCRIPTOR.fields_by_name["values"] if wrapped else into
        yield from _items(kind.item_type, values, path)
    elif isinstance(kind, inspect.DictType):
        if message is None or not message.GetOptions().map_entry:
            yield f"{path}: is no map in the message"
        else:
            yield from _one(kind.value_type, message.fields_by_name["value"], path)
    elif into.type not in _SCALARS.get(type(kind), ()) or into.is_repeated:
        yield f"{path}: {type(kind).__name__} does not fit into the message"


def _items(kind: inspect.Type, into: Any, path: str) -> Iterator[str]:
    if not into.is_repeated:
        yield f"{path}: is no list in the message"
        return
    (item,) = _members(kind)
    if isinstance(item, inspect.StructType):
        yield from _table(item, into.message_type, path)
    elif into.type not in _SCALARS.get(type(item), ()):
        yield f"{path}: {type(item).__name__} does not fit into the message"


def _one(kind: inspect.Type, into: FieldDescriptor, path: str) -> Iterator[str]:
    if isinstance(kind, inspect.AnyType):
        yield from () if into.message_type is Json.DESCRIPTOR else (f"{path}: is no Json",)
    else:
        yield from _value(list(_members(kind)), into, path)


def _table(kind: inspect.StructType, message: Descriptor | None, path: str) -> Iterator[str]:
    if message is None:
        yield f"{path}: is no message"
    else:
        yield from complaints(kind.cls, message, f"{path}.")


def _choice(kinds: list[inspect.Type], message: Descriptor | None, path: str) -> Iterator[str]:
    if message is None or len(message.oneofs) != 1 or len(message.fields) != len(kinds):
        yield f"{path}: is no choice in the message"
        return
    for kind in kinds:
        name = "table" if isinstance(kind, inspect.StructType) else "word"
        yield from _value([kind], message.fields_by_name[name], f"{path}.{name}")
