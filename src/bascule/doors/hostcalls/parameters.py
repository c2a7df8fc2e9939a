"""Parameters that a guest sets, one at a time: ``{"key", "value"}``.

They only lower what its host and its task allow. What is neither about tools nor about budgets goes
to the model's server as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.doors.hostcalls.abi import MASK, Errno, Fault
from bascule.errors import InvalidRecord
from bascule.loop.budgets import LoopSettings
from bascule.model.json import JsonValue, is_array, is_object
from bascule.model.session import SessionLimits, SessionRequest
from bascule.wire.record_rules import refuse_bad_patterns
from bascule.wire.strict_json import StrictJsonError, loads
from bascule.wire.task_config import HOST_ONLY_PREFIX, PREFIX, means_mcp

#: What one tool may give at most, by a parameter: a guest's own, and any.
MOST_GUEST_OUTPUT: Final = 1024 * 1024
MOST_OUTPUT: Final = 10 * 1024 * 1024
#: What a tool of the guest's own may give where no parameter says so.
USUAL_OUTPUT: Final = 64 * 1024
_MOST_ENTRIES: Final = 1024
_TEXTS: Final = frozenset({"model", "backend"})
_POINTERS: Final = frozenset({"tool_arena_ptr", "tool_arena_len"})
#: The least and the most of each number: less is wrong, more means the most.
_NUMBERS: Mapping[str, tuple[int, int]] = {
    "timeout_ms": (1, MASK),
    "max_tool_output_bytes": (1, MOST_OUTPUT),
    "max_total_tool_calls": (0, 10_000),
    "max_tool_calls": (0, 10_000),
    "max_iterations": (0, 128),
}
#: A session has its own: these are taken and mean nothing, as in Spear.
_UNREAD: Final = frozenset({"messages", "tools", "stream"})


def read_parameter(data: bytes) -> tuple[str, JsonValue]:
    """Return a key and its value; what is no JSON, or has no key, is -EIO, as in Spear."""
    try:
        found = loads(data)
    except StrictJsonError:
        raise Fault(Errno.EIO) from None
    key = found.get("key") if is_object(found) else None
    if not isinstance(key, str) or not key or not is_object(found):
        raise Fault(Errno.EIO)
    return key, found.get("value")


class ChatParameters(Struct, frozen=True, kw_only=True):
    """What a chat session was told so far."""

    request: SessionRequest = SessionRequest()
    model: str = ""
    backend: str = ""
    timeout_ms: int | None = None
    tool_arena_ptr: int = 0
    tool_arena_len: int = 0
    max_tool_output_bytes: int | None = None
    max_total_tool_calls: int | None = None
    #: Another name of ``max_total_tool_calls``, which counts before it.
    max_tool_calls: int | None = None
    max_iterations: int | None = None
    #: What goes upstream as it is.
    forwarded: Mapping[str, JsonValue] = {}

    def having(self, key: str, value: JsonValue) -> ChatParameters:
        """Return the parameters with one more; -EINVAL for a value that cannot be meant."""
        if means_mcp(key):
            return replace(self, request=narrowed(self.request, key, value))
        if key in _TEXTS:
            return replace(self, **{key: _text(value)})
        if key in _POINTERS:
            return replace(self, **{key: _number(value) & MASK})
        if key in _NUMBERS:
            least, most = _NUMBERS[key]
            return replace(self, **{key: min(_number(value, least), most)})
        if key in _UNREAD:
            return self
        return replace(self, forwarded={**self.forwarded, key: value})

    @property
    def narrowing(self) -> SessionRequest:
        """Return what the session of tools is opened with."""
        most = self.max_tool_output_bytes
        own = self.request.max_tool_output_bytes
        if most is None or (own is not None and own <= most):
            return self.request
        return replace(self.request, max_tool_output_bytes=most)

    @property
    def guest_output(self) -> int:
        """Return what a tool of the guest's own may give."""
        return min(self.max_tool_output_bytes or USUAL_OUTPUT, MOST_GUEST_OUTPUT)

    def applied(self, settings: LoopSettings) -> LoopSettings:
        """Return the settings of a conversation, no budget of theirs above these."""
        calls = self.max_total_tool_calls
        limits = SessionLimits(
            max_iterations=self.max_iterations,
            max_total_tool_calls=self.max_tool_calls if calls is None else calls,
        )
        own = settings.within(limits)
        if self.timeout_ms is None:
            return own
        return replace(own, max_seconds=min(own.max_seconds, self.timeout_ms / 1000))


def narrowed(request: SessionRequest, key: str, value: JsonValue) -> SessionRequest:
    """Return what a session asks for, with an ``mcp.*`` parameter in it.

    ``mcp.task_*`` is the host's to say: -EACCES. A key that there is not and a value of another
    type are -EINVAL: left out, they would leave open what they were to close.
    """
    if key.startswith(HOST_ONLY_PREFIX):
        raise Fault(Errno.EACCES)
    field = key.removeprefix(PREFIX)
    if PREFIX + field != key or field not in SessionRequest.__struct_fields__ or value is None:
        raise Fault(Errno.EINVAL)
    if is_array(value):
        if len(value) > _MOST_ENTRIES:
            raise Fault(Errno.EINVAL)
        value = [one for one in value if one != ""]  # as in Spear
    try:
        asked = msgspec.convert({field: value}, SessionRequest)
        refuse_bad_patterns(asked)
    except (msgspec.ValidationError, InvalidRecord):
        raise Fault(Errno.EINVAL) from None
    return replace(request, **{field: getattr(asked, field)})


def _text(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise Fault(Errno.EINVAL)
    return value


def _number(value: JsonValue, least: int = -(2**31)) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Fault(Errno.EINVAL)
    return value
