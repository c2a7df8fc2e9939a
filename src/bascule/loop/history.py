"""The messages of a conversation, each of them encoded once.

A conversation asks again and again with a history that only grows, and that may be megabytes long.
"""

from __future__ import annotations

from collections.abc import Iterable

from bascule.model.json import JsonObject
from bascule.wire.strict_json import MAX_DEPTH, StrictJsonError, dumps


class History(list[JsonObject]):
    """Messages in their order, which are only ever appended to, and their JSON."""

    def __init__(self, messages: Iterable[JsonObject]) -> None:
        super().__init__(messages)
        self._encoded: list[bytes] = []
        self._count = 0

    def encoded(self) -> list[bytes]:
        """Return the messages as pieces of a JSON array; raise StrictJsonError."""
        if self._count < len(self):
            new = self[self._count :]  # an array inside of a request: one level less is left
            text = dumps(new, max_depth=MAX_DEPTH - 1)[1:-1]
            self._encoded += (b",", text) if self._count else (text,)
            self._count = len(self)
        return self._encoded


def encoded_request(body: JsonObject) -> bytes:
    """Return a request as JSON, its history as it was encoded before; raise StrictJsonError."""
    history = body.get("messages")
    if not isinstance(history, History):
        return dumps(body)
    rest = {name: body[name] for name in body if name != "messages"}
    try:
        messages = history.encoded()
    except StrictJsonError:
        return dumps({**rest, "messages": history[:]})  # which says where in the request it is
    name = b',"messages":[' if rest else b'"messages":['
    return b"".join((dumps(rest)[:-1], name, *messages, b"]}"))
