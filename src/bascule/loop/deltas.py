"""A model's turn, put together: from chunks as they arrive, or from a whole completion.

Upstreams differ: ids and indexes are left out, names are repeated or come in pieces, arguments are
objects instead of text. What can be understood is; what cannot becomes a call that will be answered
with an error, never half a call that is executed.
"""

from __future__ import annotations

import secrets

from msgspec import Struct

from bascule.loop.backend import UpstreamFailed
from bascule.loop.events import Delta
from bascule.model.json import JsonObject, JsonValue, is_array, is_object, objects
from bascule.wire.strict_json import StrictJsonError, dumps

MAX_CALLS = 128
MAX_ID = 256
MAX_CALL_CHARACTERS = 4 * 1024 * 1024
#: No tool is called anything longer; what comes after it is not waited for.
MAX_NAME = 1024
_HEAD = ("id", "created", "model", "system_fingerprint", "service_tier")
_NOT_OTHER = frozenset({"", "function", "id", "type"})
_OF_CALL = frozenset({"index", "id", "type", "function"})
_ASSEMBLED = frozenset({"role", "content", "refusal", "tool_calls"})

#: Ours to say of a conversation, wherever in an answer it stands.
_OURS = "bascule"
_NOT_PASSED = frozenset({"role", "tool_calls", _OURS})


class Asked(Struct, frozen=True, kw_only=True):
    """A call as the model made it.

    ``other`` is the whole of one that is not of a function. ``extra`` is what an upstream adds of
    its own and wants to see again, such as a signature of its thoughts.
    """

    call_id: str
    name: str
    arguments: str
    other: JsonObject | None = None
    extra: JsonObject = {}


class Turn(Struct, frozen=True, kw_only=True):
    """What a model said in one turn."""

    text: str
    calls: tuple[Asked, ...]
    finish_reason: str
    refusal: str | None = None
    head: JsonObject = {}
    usage: JsonObject | None = None
    logprobs: JsonValue = None
    extra: JsonObject = {}

    @property
    def cut(self) -> bool:
        """Say whether the model was stopped before it had finished."""
        return self.finish_reason == "length"


class Assembly:
    """A turn that is arriving in chunks."""

    def __init__(self) -> None:
        self.head: dict[str, JsonValue] = {}
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls = _Calls()
        self._finish: str | None = None
        self._usage: JsonObject | None = None
        self._extra = _Growing()

    def add(self, chunk: JsonObject) -> Delta | None:
        """Take a chunk in; return what of it is to be passed on."""
        if not self.head:
            self.head = head_of(chunk)
        usage = chunk.get("usage")
        if is_object(usage):
            self._usage = usage
        choice = _first_choice(chunk)
        if choice is None:
            return None
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            self._finish = finish
        delta = choice.get("delta")
        return self._take(delta, choice.get("logprobs")) if is_object(delta) else None

    def _take(self, delta: JsonObject, logprobs: JsonValue) -> Delta | None:
        for fragment in objects(delta.get("tool_calls")):
            self._calls.add(fragment)
        passing: dict[str, JsonValue] = {}
        for key, value in delta.items():
            if key in _NOT_PASSED or value in (None, ""):
                continue
            if key in ("content", "refusal"):
                value = text_of(value)
                (self._text if key == "content" else self._refusal).append(value)
            else:
                self._extra.add(key, value)
            passing[key] = value
        return Delta(passing, logprobs) if passing or logprobs else None

    def turn(self) -> Turn:
        """Return the whole turn, once the chunks have ended."""
        calls = self._calls.asked()
        return Turn(
            text="".join(self._text),
            calls=calls,
            finish_reason=self._finish or ("tool_calls" if calls else "stop"),
            refusal="".join(self._refusal) or None,
            head=self.head,
            usage=self._usage,
            extra=self._extra.whole(),
        )


def whole_turn(completion: JsonObject) -> Turn:
    """Return the turn in a whole completion; raise UpstreamFailed when there is none."""
    choice = _first_choice(completion)
    message = None if choice is None else choice.get("message")
    if choice is None or not is_object(message):
        raise UpstreamFailed("the upstream's answer has no message in it")
    calls = _Calls()
    for call in objects(message.get("tool_calls")):
        calls.add({**call, "index": None}, whole=True)
    asked = calls.asked()
    finish, refusal = choice.get("finish_reason"), message.get("refusal")
    usage = completion.get("usage")
    return Turn(
        text=text_of(message.get("content")),
        calls=asked,
        finish_reason=finish if isinstance(finish, str) else ("tool_calls" if asked else "stop"),
        refusal=refusal if isinstance(refusal, str) else None,
        head=head_of(completion),
        usage=usage if is_object(usage) else None,
        logprobs=choice.get("logprobs"),
        extra={key: message[key] for key in message if key not in _ASSEMBLED and key != _OURS},
    )


class _Growing:
    """Fields that come in pieces: texts and lists grow, the rest is replaced.

    They are put together at the end, once: with every piece it would take longer and longer.
    """

    def __init__(self) -> None:
        self._pieces: dict[str, list[JsonValue]] = {}

    def add(self, name: str, piece: JsonValue, *, grows: bool = True) -> None:
        pieces = self._pieces.setdefault(name, [])
        if pieces and not (grows and _grows(pieces[-1], piece)):
            pieces.clear()
        pieces.append(piece)

    def whole(self) -> dict[str, JsonValue]:
        return {name: _together(pieces) for name, pieces in self._pieces.items()}


def _grows(before: JsonValue, now: JsonValue) -> bool:
    both_text = isinstance(before, str) and isinstance(now, str)
    return both_text or (is_array(before) and is_array(now))


def _together(pieces: list[JsonValue]) -> JsonValue:
    if isinstance(pieces[0], str):
        return "".join(piece for piece in pieces if isinstance(piece, str))
    if is_array(pieces[0]):
        return [item for piece in pieces if is_array(piece) for item in piece]
    return pieces[-1]


def text_of(content: JsonValue) -> str:
    """Return the text of a content, which may come in parts."""
    if isinstance(content, str):
        return content
    parts = content if is_array(content) else ()
    return "".join(text_of(part.get("text")) for part in parts if is_object(part))


def head_of(answer: JsonObject) -> dict[str, JsonValue]:
    """Return what identifies an answer."""
    return {key: answer[key] for key in _HEAD if answer.get(key) is not None}


def call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def _first_choice(answer: JsonObject) -> JsonObject | None:
    """Return the choice 0; others were not asked for."""
    choices = answer.get("choices")
    for choice in choices if is_array(choices) else ():
        if not is_object(choice):
            continue
        index = choice.get("index")
        if index is None or index == 0:
            return choice
    return None


class _Calls:
    """The calls of a turn, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._left = MAX_CALL_CHARACTERS

    def add(self, fragment: JsonObject, *, whole: bool = False) -> None:
        call = None if whole else self._find(fragment.get("index"), fragment.get("id"))
        if call is None:
            if len(self._calls) >= MAX_CALLS:
                raise UpstreamFailed(f"the upstream asked for more than {MAX_CALLS} calls at once")
            call = _Call(fragment.get("index"))
            self._calls.append(call)
        self._left -= call.add(fragment)
        if self._left < 0:
            raise UpstreamFailed("the upstream's calls are larger than any tool would take")

    def _find(self, index: JsonValue, given_id: JsonValue) -> _Call | None:
        """Return the call a fragment belongs to: by index, else by id, else the last one.

        Some upstreams give every call the index 0; an id of its own tells it apart.
        """
        named = isinstance(given_id, str) and bool(given_id)
        for call in reversed(self._calls):
            same = call.index == index if index is not None else not named
            if (named and call.id == given_id) or (same and not (named and call.id)):
                return call
        return None

    def asked(self) -> tuple[Asked, ...]:
        """Return the calls, each under an id of its own."""
        seen: set[str] = set()
        asked: list[Asked] = []
        for call in self._calls:
            usable = 0 < len(call.id) <= MAX_ID and call.id not in seen
            given = call.id if usable else call_id()
            seen.add(given)
            asked.append(call.asked(given))
        return tuple(asked)


class _Call:
    """One call, as far as it has arrived."""

    def __init__(self, index: JsonValue) -> None:
        self.index = index
        self.id = ""
        self._name = ""
        self._arguments: list[str] = []
        self._kind: str | None = None
        self._other = _Growing()
        self._extra: dict[str, JsonValue] = {}

    def add(self, fragment: JsonObject) -> int:
        """Take a fragment in; return how many characters it has."""
        given_id = fragment.get("id")
        if isinstance(given_id, str) and given_id:
            self.id = given_id
        kind = fragment.get("type")
        if isinstance(kind, str) and kind not in _NOT_OTHER:
            self._kind = self._kind or kind
        if self._kind is not None:
            return self._add_other(self._kind, fragment)
        self._extra |= {key: fragment[key] for key in fragment if key not in _OF_CALL}
        function = fragment.get("function")
        return self._add_function(function) if is_object(function) else 0

    def _add_function(self, function: JsonObject) -> int:
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str) and name != self._name:  # some repeat it in every fragment
            self._name += name if len(self._name) <= MAX_NAME else ""
        if arguments is None:
            return 0
        text = arguments if isinstance(arguments, str) else _as_text(arguments)
        self._arguments.append(text)
        return len(text)

    def _add_other(self, kind: str, fragment: JsonObject) -> int:
        """Join the parts of a call of another type; its name is not one that grows."""
        part = fragment.get(kind)
        size = 0
        for key, value in part.items() if is_object(part) else ():
            if key == "name":
                self._name = str(value)
            self._other.add(key, value, grows=key != "name")
            size += len(value) if isinstance(value, str) else 0
        return size

    def asked(self, given_id: str) -> Asked:
        kind, other = self._kind, None
        if kind is not None:
            other = {"id": given_id, "type": kind, kind: self._other.whole()}
        return Asked(
            call_id=given_id,
            name=self._name,
            arguments="".join(self._arguments),
            other=other,
            extra=self._extra,
        )


def _as_text(arguments: JsonValue) -> str:
    try:
        return dumps(arguments).decode()
    except StrictJsonError:
        return "?"  # what JSON cannot say is no arguments: the call is answered with an error
