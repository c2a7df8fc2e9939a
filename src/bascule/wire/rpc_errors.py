"""How an error of the registry crosses gRPC: the trailer that has it, and its messages."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import DecodeError, Message

from bascule.wire.pb import errors_pb2

#: The trailer with the bytes of a ``Status``.
DETAILS = "grpc-status-details-bin"
#: Codes whose details have a message of their own; the others are a ``Refusal``.
MESSAGES: Mapping[str, type[Message]] = {
    "store_changed": errors_pb2.StoreChanged,
    "compacted": errors_pb2.BelowFloor,
    "future_revision": errors_pb2.AheadOfHead,
}
_CODES = {message.DESCRIPTOR.full_name: code for code, message in MESSAGES.items()}


def code_in(trailer: bytes) -> str | None:
    """Return the stable code that a trailer has; None where it cannot be read or has none."""
    try:
        status = errors_pb2.Status.FromString(trailer)
        for detail in status.details:
            name = detail.TypeName()
            if name == errors_pb2.Refusal.DESCRIPTOR.full_name:
                return errors_pb2.Refusal.FromString(detail.value).code
            if name in _CODES:
                return _CODES[name]
    except DecodeError:
        pass
    return None
