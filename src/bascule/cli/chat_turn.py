"""One turn of a chat: a streamed completion as it is read and shown.

Text goes to standard output, notes on what the tools do to standard error; on a terminal the two
do not run into each other. Below: the client of our own API. Above: ``chat``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from bascule.cli.command import shown
from bascule.cli.table import Colour, paint
from bascule.client.http import ApiClient, Unreachable
from bascule.errors import BasculeError
from bascule.model.json import is_array, is_object
from bascule.policy.characters import render_safe
from bascule.wire.strict_json import StrictJsonError, loads

COMPLETIONS = "/v1/chat/completions"
#: Longer than any answer that is still coming: the server keeps silent streams alive.
TURN_SECONDS = 3_600.0
_DONE = b"[DONE]"
_LONG_MS = 1000


class ChatFailed(BasculeError):
    """An answer that broke off, in the words of whoever broke it off."""

    code = "chat_failed"


class Screen:
    """Where an answer and the notes beside it are shown; ``quiet`` shows no text."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._inside_a_line = False

    def text(self, text: str) -> None:
        """Show more of the answer."""
        if text and not self._quiet:
            sys.stdout.write(render_safe(text))
            sys.stdout.flush()
            self._inside_a_line = not text.endswith("\n")

    def note(self, text: str, colour: Colour = "dim") -> None:
        """Say something beside the answer."""
        if sys.stdout.isatty() and sys.stderr.isatty():
            self.end_line()
        print(paint(text, colour, sys.stderr), file=sys.stderr, flush=True)

    def end_line(self) -> None:
        """Begin a new line, unless the answer has."""
        if self._inside_a_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._inside_a_line = False


class Turn:
    """What one turn has come to so far."""

    def __init__(self) -> None:
        self.text = ""
        self.refusal = ""
        self.finish_reason: str | None = None
        self._head: dict[str, Any] = {}
        self._usage: Any = None
        self._bascule: Any = None

    @property
    def message(self) -> dict[str, Any]:
        """The assistant's message, for the next turn's history."""
        return {"role": "assistant", "content": self.text or self.refusal}

    def completion(self) -> dict[str, Any]:
        """Return the turn as one object, as an answer that is not streamed has it."""
        message = {"role": "assistant", "content": self.text, "refusal": self.refusal or None}
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        whole = {**self._head, "object": "chat.completion", "choices": [choice]}
        beside = {"usage": self._usage, "bascule": self._bascule}
        return whole | {name: value for name, value in beside.items() if value is not None}

    def take(self, chunk: Mapping[str, Any], screen: Screen) -> None:
        """Take one chunk in, and show what is new in it."""
        self._head = self._head or {k: chunk[k] for k in ("id", "created", "model") if k in chunk}
        self._usage = chunk.get("usage") or self._usage
        choices = chunk.get("choices")
        for choice in choices if is_array(choices) else ():
            self._take_choice(choice, screen)
        note = chunk.get("bascule")
        if is_object(note):
            self._take_note(note, screen)

    def _take_choice(self, choice: Any, screen: Screen) -> None:
        if not is_object(choice):
            return
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        delta = choice.get("delta")
        if is_object(delta):
            text, refusal = str(delta.get("content") or ""), str(delta.get("refusal") or "")
            self.text += text
            self.refusal += refusal
            screen.text(text + refusal)

    def _take_note(self, note: Mapping[str, Any], screen: Screen) -> None:
        event = note.get("event")
        if event == "call_started":
            screen.note(f"  calling {shown(str(note.get('name')))}")
        elif event == "call_finished":
            screen.note(*_finished(note))
        elif event is None:
            self._bascule = note
            _say_ending(note, screen)


def _finished(note: Mapping[str, Any]) -> tuple[str, Colour]:
    name = shown(str(note.get("name")))
    time = _time(note.get("duration_ms"))
    error = note.get("error")
    if error is None:
        return f"  {name} answered{time}", "green"
    return f"  {name} failed{time}: {shown(str(error))}", "red"


def _time(milliseconds: Any) -> str:
    if not isinstance(milliseconds, int | float):
        return ""
    if milliseconds < _LONG_MS:
        return f" in {milliseconds:.0f} ms"
    return f" in {milliseconds / _LONG_MS:.1f} s"


def _say_ending(note: Mapping[str, Any], screen: Screen) -> None:
    warnings = note.get("warnings")
    for warning in warnings if is_array(warnings) else ():
        screen.note(f"  warning: {shown(str(warning))}", "yellow")
    if note.get("budget_hit"):
        screen.note(f"  stopped: {shown(str(note['budget_hit']))} is used up", "yellow")


async def take_turn(api: ApiClient, body: Mapping[str, Any], screen: Screen) -> Turn:
    """Send a request and show its answer; raise BasculeError when it comes to no good end."""
    turn = Turn()
    events = api.events(COMPLETIONS, method="POST", body=dict(body), seconds=TURN_SECONDS)
    async with aclosing(events):
        async for event in events:
            if event.data == _DONE:
                screen.end_line()
                return turn
            turn.take(_chunk(event.data), screen)
    raise Unreachable("the answer was cut: the stream ended before its end")


def _chunk(data: bytes) -> Mapping[str, Any]:
    try:
        value = loads(data)
    except StrictJsonError as error:
        raise Unreachable(f"a chunk that cannot be read: {error}") from None
    if not is_object(value):
        raise Unreachable("a chunk that is no object")
    error = value.get("error")
    if is_object(error):
        raise ChatFailed(str(error.get("message") or "the answer broke off"))
    return value
