"""What an upstream's answer means: a completion, a chunk, a list of models, or a failure.

Servers that call themselves compatible put their errors into many shapes; all of them come out in
OpenAI's. What a server repeats of our key is masked before anybody sees it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from math import isfinite

from msgspec import Struct

from bascule.loop.backend import Completion, UpstreamFailed
from bascule.model.json import JsonObject, is_array, is_object, objects
from bascule.outbound.http import HttpAnswer
from bascule.policy.characters import render_safe
from bascule.policy.known_values import spellings
from bascule.wire.strict_json import StrictJsonError, loads

DONE = b"[DONE]"
LONGEST_WAIT_SECONDS = 86_400.0
SHOWN_CHARACTERS = 500
MODELS_KEPT = 10_000
MASK = "***"
#: The type of an error that came without one.
NO_TYPE = "upstream_error"

_FIRST_ERROR = 400
_LAST_ERROR = 599
_TOO_MANY = 429
# What servers call their limits where the status does not say it.
_RATE_LIMITS = frozenset({"429", "rate_limit_exceeded", "rate_limit_error", "insufficient_quota"})
_KEPT_HEADERS = frozenset(
    {
        "content-type",
        "content-encoding",
        "retry-after",
        "retry-after-ms",
        "x-request-id",
        "x-should-retry",
    }
)
_KEPT_PREFIXES = ("openai-", "x-ratelimit-")


class UpstreamLimits(Struct, frozen=True):
    """Hard caps of one backend."""

    body_bytes: int = 16 * 1024 * 1024
    event_bytes: int = 8 * 1024 * 1024
    stream_bytes: int = 64 * 1024 * 1024
    error_bytes: int = 64 * 1024
    models_bytes: int = 4 * 1024 * 1024


# --- good answers


def require_type(response: HttpAnswer, wanted: str, known: Collection[str]) -> None:
    """Refuse an answer of another type, or in an encoding that nobody asked for."""
    given = response.content_type
    if given != wanted and not (wanted.endswith("json") and given.endswith("+json")):
        shown = f"{_masked(given, known)[:60]!r}" if given else "an answer without a type"
        raise UpstreamFailed(f"the backend sent {render_safe(shown, one_line=True)}, not {wanted}")
    if response.content_encoding not in ("", "identity"):
        raise UpstreamFailed("the backend sent a compressed answer, which was not asked for")


def completion(text: bytes, known: Collection[str]) -> Completion:
    """Return a whole completion, or raise UpstreamFailed for what is none."""
    value = _object(text, known)
    choices = value.get("choices")
    if not is_array(choices) or not choices:
        raise UpstreamFailed("the backend's answer is garbled: it has no choices")
    for choice in choices:
        if not is_object(choice) or not is_object(choice.get("message")):
            raise UpstreamFailed("the backend's answer is garbled: a choice without a message")
    return value


def event_chunk(data: bytes, known: Collection[str]) -> Completion | None:
    """Return the chunk of one event, or None for ``[DONE]``."""
    return None if data.strip() == DONE else _object(data, known)


def model_names(text: bytes, known: Collection[str]) -> list[str]:
    """Return the names in a list of models, each once, in its order."""
    hide = _hiding(known)
    rows = _object(text, known).get("data")
    if not is_array(rows):
        raise UpstreamFailed("the backend's list of models is garbled: it has no data")
    names = [row.get("id") for row in objects(rows[:MODELS_KEPT])]
    return list(dict.fromkeys(hide(name) for name in names if isinstance(name, str) and name))


def _object(text: bytes, known: Collection[str]) -> Completion:
    """Return a JSON object; an error that came under the flag of success is raised."""
    try:
        value = loads(text)
    except StrictJsonError as error:
        raise UpstreamFailed(f"the backend's answer is garbled: {error}") from None
    if not isinstance(value, dict):
        raise UpstreamFailed("the backend's answer is garbled: not a JSON object")
    if value.get("error"):
        error = _error_object(value, known)
        raise UpstreamFailed(_said(error), status=_status_of(error), error=error)
    return value


class Ending:
    """Whether a stream has come to its end: every choice that began must have a finish reason."""

    def __init__(self) -> None:
        self._finished: dict[str, bool] = {}

    def note(self, chunk: JsonObject) -> None:
        """Look at one chunk."""
        for choice in objects(chunk.get("choices")):
            index = str(choice.get("index", 0))
            if choice.get("finish_reason") is not None:
                self._finished[index] = True
            elif index not in self._finished:
                self._finished[index] = False

    def refuse_cut(self) -> None:
        """Raise UpstreamFailed unless the stream may end here without ``[DONE]``."""
        if not self._finished or not all(self._finished.values()):
            raise UpstreamFailed("the backend's stream was cut: it ended without a finish reason")


# --- failures


def failure(
    response: HttpAnswer, text: bytes, known: Collection[str], *, now: float
) -> UpstreamFailed:
    """Return the failure that an answer of 400 and above stands for."""
    error = _parsed_error(text, known)
    if error is None:
        kind = _masked(response.content_type, known)[:60]
        message = f"the backend answered HTTP {response.status}"
        message += f" ({render_safe(kind, one_line=True)})" if kind else ""
    else:
        message = _said(error)
    return UpstreamFailed(
        message,
        status=response.status,
        error=error,
        retry_after=retry_after(response.headers, now),
    )


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return how many seconds to wait, given in milliseconds, in seconds or as a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    text = headers.get("Retry-After")
    seconds = _number(text)
    if seconds is not None:
        return _bounded(seconds)
    try:
        return None if text is None else _bounded(parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def kept_headers(headers: Mapping[str, str], known: Collection[str] = ()) -> dict[str, str]:
    """Return what a client may see of an answer's headers, by names in small letters."""
    hide = _hiding(known)
    return {
        name.lower(): hide(text)
        for name, text in headers.items()
        if name.lower() in _KEPT_HEADERS or name.lower().startswith(_KEPT_PREFIXES)
    }


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)


def _parsed_error(text: bytes, known: Collection[str]) -> JsonObject | None:
    try:
        value = loads(text)
    except StrictJsonError:
        return None
    return _error_object(value, known) if is_object(value) else None


def _error_object(value: JsonObject, known: Collection[str]) -> JsonObject:
    """Return an error in OpenAI's shape, whatever shape it came in, our key masked."""
    inner = value.get("error") or value
    found: JsonObject = inner if is_object(inner) else {"message": inner}
    message = found.get("message") or found.get("detail") or "the backend gave no reason"
    code = found.get("code")
    return {
        "message": _masked(message if isinstance(message, str) else repr(message), known),
        "type": _masked(str(found.get("type") or NO_TYPE), known),
        "param": None if found.get("param") is None else _masked(str(found["param"]), known),
        "code": _masked(code, known) if isinstance(code, str) else code,
    }


def _forms(known: Collection[str]) -> list[str]:
    """Return our credentials in every usual spelling, the longest first."""
    forms = {form for value in known for form in (value, *spellings(value))}
    return sorted(forms, key=len, reverse=True)


def _hiding(known: Collection[str]) -> Callable[[str], str]:
    """Return what hides our credentials in a text."""
    forms = _forms(known)

    def hide(text: str) -> str:
        for form in forms:
            text = text.replace(form, MASK)
        return text

    return hide


def _masked(text: str, known: Collection[str]) -> str:
    """Hide our credentials, then cut: half a key must not be left standing at the cut."""
    text = _hiding(known)(text)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


async def masked_pieces(
    pieces: AsyncGenerator[bytes, None], known: Collection[str]
) -> AsyncGenerator[bytes, None]:
    """Yield a body with our credentials hidden, also one that comes in two pieces."""
    hidden = [form.encode() for form in _forms(known)]
    kept = max(map(len, hidden), default=1) - 1
    text = b""
    async with aclosing(pieces):
        async for piece in pieces:
            text += piece
            for value in hidden:
                text = text.replace(value, MASK.encode())
            ready = max(0, len(text) - kept)
            if ready:
                yield text[:ready]
            text = text[ready:]
    if text:
        yield text


def _said(error: JsonObject) -> str:
    return f"the backend says: {error['message']}"


def _status_of(error: JsonObject) -> int | None:
    """Return the status that an error names, where it came with none of its own."""
    code = error["code"]
    if isinstance(code, int) and _FIRST_ERROR <= code <= _LAST_ERROR:
        return code
    return _TOO_MANY if _RATE_LIMITS & {str(code), str(error["type"])} else None
