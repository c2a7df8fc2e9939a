"""What a chat request asks of Bascule: the ``mcp`` object beside OpenAI's fields, keys, headers.

Each of them is a request of the session, which has what all of them leave.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace
from starlette.types import Scope

from bascule.asgi.json import as_struct
from bascule.asgi.narrowing import narrowing_in, narrowing_of
from bascule.doors.chat.flat_keys import OBJECT as FIELD
from bascule.doors.chat.flat_keys import flat_narrowing, has_ours, without_ours
from bascule.errors import InvalidRecord
from bascule.loop.budgets import LoopSettings
from bascule.loop.request import BadChat
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.session import Count, Iterations, SessionLimits, SessionRequest
from bascule.wire.strict_json import dumps


class ChatOptions(Struct, frozen=True, kw_only=True):
    """What the ``mcp`` object may say besides what it selects: budgets only lower our own.

    ``resume`` names a parked turn to go on with.
    """

    resume: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    show_activity: bool = False
    show_calls: bool = False
    max_iterations: Iterations | None = None
    max_total_tool_calls: Count | None = None

    def applied(self, settings: LoopSettings) -> LoopSettings:
        """Return the settings of one conversation."""
        limits = SessionLimits(
            max_iterations=self.max_iterations, max_total_tool_calls=self.max_total_tool_calls
        )
        own = settings.within(limits)
        return replace(
            own,
            show_activity=own.show_activity or self.show_activity,
            show_calls=own.show_calls or self.show_calls,
        )


_NO_OPTIONS = ChatOptions()
_OPTIONS = frozenset(ChatOptions.__struct_fields__)


class Asked(Struct, frozen=True, kw_only=True):
    """A request as it came (``raw``), as plain values without ours, and what it narrows."""

    raw: bytes
    plain: JsonObject
    has_ours: bool
    model: str
    narrowing: tuple[SessionRequest, ...]
    options: ChatOptions

    def bytes_for(self, model: str) -> bytes:
        """Return the request for a backend: as it came, unless something has to be taken out."""
        if model == self.model and not self.has_ours:
            return self.raw
        return dumps({**self.plain, "model": model})


def read_asked(raw: bytes, given: JsonObject, scope: Scope) -> Asked:
    """Read a request, given as it came and as an object; raise Refused, BadChat, InvalidRecord."""
    model = given.get("model")
    if not isinstance(model, str) or not model:
        raise BadChat("model must be a string", param="model")
    selected: tuple[SessionRequest, ...] = ()
    options, plain = _NO_OPTIONS, given
    if has_ours(given):
        selected, options = _mcp(given.get(FIELD))
        plain = without_ours(given)
        selected = (*selected, *flat_narrowing(given))
    return Asked(
        raw=raw,
        plain=plain,
        has_ours=plain != given,
        model=model,
        narrowing=(*selected, *narrowing_in(scope)),
        options=options,
    )


def _mcp(value: JsonValue) -> tuple[tuple[SessionRequest, ...], ChatOptions]:
    if value is None:
        return (), _NO_OPTIONS
    if not is_object(value):
        raise BadChat("mcp must be an object", param=FIELD)
    options = {key: value[key] for key in value if key in _OPTIONS}
    selection = {key: value[key] for key in value if key not in _OPTIONS}
    try:
        read = as_struct(options, ChatOptions)
    except InvalidRecord as error:
        raise InvalidRecord([f"{FIELD}.{problem}" for problem in error.problems]) from None
    return ((narrowing_of(selection, FIELD),) if selection else ()), read
