"""The built-in model that is none: a script that calls tools as it is told and says what they said.

    call time.get_current_time with {"timezone": "UTC"} and call notes.list_notes
    then call notes/read_note with {"name": "welcome"}

``and`` (or a comma) joins calls of one turn, ``then`` and a new line begin the next turn. It lets a
first run and tests work without a model's server, it is deterministic, and every answer says what
it is. The loop offers it as the backend ``rehearsal``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager
from json import JSONDecoder
from typing import Any

from msgspec import Struct

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.loop.backend import RawAnswer
from bascule.loop.deltas import text_of
from bascule.loop.request import tool_name
from bascule.model.json import JsonObject, JsonValue, is_object, objects
from bascule.wire.strict_json import StrictJsonError, dumps, loads

REHEARSAL = "rehearsal"
SELF = "I am a rehearsal, not a model."
HOW = 'Write what to call, for example: call SERVER.TOOL with {"name": "value"}'
READ_CHARACTERS = 65_536
SAID_CHARACTERS = 4_000
MAX_CALLS = 64

_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_./-]*[A-Za-z0-9_])?"
# A name needs the word "call" before it, unless it shows by its form that it is a tool's.
_SITE = re.compile(
    rf"\bcall\s+(?P<told>{_NAME})|(?:\band\b|\bthen\b|,)\s+(?P<joined>\w+(?:[./]|__){_NAME})",
    re.IGNORECASE,
)
_WITH = re.compile(r"\s*(?:with\s*)?(?=\{)", re.IGNORECASE)
_NEXT_TURN = re.compile(r"\bthen\b|\n", re.IGNORECASE)
_ASKS_FOR_HELP = re.compile(r"what can you do|which tools|list (?:your |the )?tools", re.IGNORECASE)
_WORDS = re.compile(r"\s*\S+|\s+$")
_DECODER = JSONDecoder()


class Wish(Struct, frozen=True):
    """One call that the person wrote down; ``arguments`` is None where they cannot be read."""

    name: str
    arguments: JsonObject | None


class Rehearsal:
    """A ``ChatUpstream`` that follows instructions in the last user message."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock

    @property
    def name(self) -> str:
        return REHEARSAL

    async def models(self) -> list[str]:
        return [REHEARSAL]

    async def complete(self, body: JsonObject, *, seconds: float) -> dict[str, Any]:
        """Return a whole completion; it takes no time, so ``seconds`` never runs out."""
        answer = _Answer(body)
        choice = _choice(answer.finish, message=answer.message())
        return {**self._frame(body, "chat.completion"), "choices": [choice], "usage": answer.usage}

    async def stream(
        self, body: JsonObject, *, seconds: float
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the same answer in small pieces; others get a turn between them."""
        answer = _Answer(body)
        frame = self._frame(body, "chat.completion.chunk")
        for delta in answer.deltas():
            yield {**frame, "choices": [_choice(None, delta=delta)]}
            await self._clock.sleep(0)
        yield {**frame, "choices": [_choice(answer.finish, delta={})]}
        options = body.get("stream_options")
        if is_object(options) and options.get("include_usage"):
            yield {**frame, "choices": [], "usage": answer.usage}

    @asynccontextmanager
    async def forward(self, body: bytes) -> AsyncGenerator[RawAnswer, None]:
        """Answer a request as an HTTP server would."""
        try:
            asked = loads(body)
        except StrictJsonError as error:
            asked = str(error)
        if not is_object(asked):
            refusal = {"message": "the body is not a JSON object", "type": "invalid_request_error"}
            text = dumps({"error": {**refusal, "param": None, "code": None}})
            yield RawAnswer(400, {"content-type": "application/json"}, _once(text))
        elif asked.get("stream") is True:
            yield RawAnswer(200, {"content-type": "text/event-stream"}, self._events(asked))
        else:
            text = dumps(await self.complete(asked, seconds=1))
            yield RawAnswer(200, {"content-type": "application/json"}, _once(text))

    async def _events(self, body: JsonObject) -> AsyncGenerator[bytes, None]:
        async for chunk in self.stream(body, seconds=1):
            yield b"data: %b\n\n" % dumps(chunk)
        yield b"data: [DONE]\n\n"

    def _frame(self, body: JsonObject, kind: str) -> dict[str, JsonValue]:
        return {
            "id": f"chatcmpl-rehearsal-{_digest(body)}",
            "object": kind,
            "created": int(self._clock.now()),
            "model": REHEARSAL,
        }


def _choice(finish: str | None, **said: JsonValue) -> dict[str, JsonValue]:
    return {"index": 0, **said, "logprobs": None, "finish_reason": finish}


async def _once(text: bytes) -> AsyncGenerator[bytes, None]:
    yield text


# --- what to do


def read_wishes(text: str) -> list[list[Wish]]:
    """Return the calls that a text asks for, turn by turn."""
    text = text[:READ_CHARACTERS]
    turns: list[list[Wish]] = []
    end = 0
    for site in _SITE.finditer(text):
        if site.start() < end or sum(map(len, turns)) >= MAX_CALLS:
            continue  # inside the arguments of the call before
        name = site["told"] or site["joined"]
        begins = site.start("told" if site["told"] else "joined")
        if not turns or _NEXT_TURN.search(text, end, begins):
            turns.append([])
        arguments, end = _arguments(text, site.end())
        turns[-1].append(Wish(name, arguments))
    return turns


def _arguments(text: str, start: int) -> tuple[JsonObject | None, int]:
    """Return the arguments after a name, and where they end."""
    found = _WITH.match(text, start)
    if found is None:
        return {}, start
    try:
        value, end = _DECODER.raw_decode(text, found.end())
        dumps(value)  # what strict JSON cannot say is no argument
    except (ValueError, RecursionError):
        return None, found.end()
    return value, end


def resolve(wanted: str, offered: Iterable[str]) -> str | None:
    """Return the offered tool that a name in any spelling means, if that is one."""
    names = list(offered)
    if wanted in names:
        return wanted
    plain = re.sub(r"[./]", "__", wanted)
    full = [name for name in names if name in (plain, f"mcp__{plain}")]
    found = full or [name for name in names if name.endswith(f"__{plain}")]
    return found[0] if len(found) == 1 else None


class _Conversation:
    """What the rehearsal needs of a request: everything since the person last spoke."""

    def __init__(self, body: JsonObject) -> None:
        messages = list(objects(body.get("messages")))
        spoken = [index for index, m in enumerate(messages) if m.get("role") == "user"]
        last = spoken[-1] if spoken else -1
        self.text = text_of(messages[last].get("content")) if spoken else ""
        self.turns = read_wishes(self.text)
        self.wishes = [wish for turn in self.turns for wish in turn]
        self.since = messages[last + 1 :]
        self.choice = body.get("tool_choice")
        self.tools = {} if self.choice == "none" else _offered(body)
        self.parallel = body.get("parallel_tool_calls") is not False

    @property
    def turns_taken(self) -> int:
        """Return how often tools were called since."""
        return sum(1 for m in self.since if m.get("role") == "assistant" and m.get("tool_calls"))

    @property
    def forced(self) -> str | None:
        """Return the tool that must be called, in either spelling of the choice."""
        if not is_object(self.choice):
            return None
        name = tool_name(self.choice) or self.choice.get("name")
        return name if isinstance(name, str) else None

    def plan(self) -> list[list[tuple[str, JsonObject]]]:
        """Return the calls of each turn, as they can be made: known tools, readable arguments."""
        turns = [
            [
                (tool, wish.arguments)
                for wish in turn
                if wish.arguments is not None and (tool := resolve(wish.name, self.tools))
            ]
            for turn in self.turns
        ]
        if not self.parallel:
            turns = [[call] for turn in turns for call in turn]
        return [turn for turn in turns if turn]

    def calls(self) -> list[tuple[str, JsonObject]]:
        """Return what to call now."""
        if self.forced is not None:
            return [(self.forced, self._arguments_for(self.forced))]
        plan = self.plan()
        turn = plan[self.turns_taken] if self.turns_taken < len(plan) else []
        if not turn and self.choice == "required" and self.tools:
            first = next(iter(self.tools))
            return [(first, self._arguments_for(first))]
        return turn

    def _arguments_for(self, tool: str) -> JsonObject:
        meant = [wish for wish in self.wishes if resolve(wish.name, [tool]) == tool]
        return (meant[0].arguments if meant else None) or {}

    def words(self) -> str:
        """Return what to say when nothing is left to be called."""
        lines = [*self._results(), *self._problems()]
        if lines:
            return f"{SELF} " + "\n".join(lines)
        if _ASKS_FOR_HELP.search(self.text):
            return f"{SELF} {self._tools_listed()}\n{HOW}"
        return f"{SELF} I only do what is written as an instruction. {HOW}"

    def _results(self) -> list[str]:
        calls = [call for m in self.since for call in objects(m.get("tool_calls"))]
        names = {str(call.get("id")): tool_name(call) for call in calls}
        return [
            f"{names.get(str(m.get('tool_call_id'))) or 'a tool'} said: "
            f"{_cut(text_of(m.get('content')))}"
            for m in self.since
            if m.get("role") == "tool"
        ]

    def _problems(self) -> list[str]:
        unknown = [wish.name for wish in self.wishes if not resolve(wish.name, self.tools)]
        garbled = [wish.name for wish in self.wishes if wish.arguments is None]
        said = [f"No tool is offered that is called {name}." for name in dict.fromkeys(unknown)]
        said += [f"I cannot read the arguments for {name}." for name in dict.fromkeys(garbled)]
        return said

    def _tools_listed(self) -> str:
        if not self.tools:
            return "I can call tools, and none are offered here."
        rows = [f"- {name}: {text}" if text else f"- {name}" for name, text in self.tools.items()]
        return "\n".join(["I can call these tools:", *rows])


def _offered(body: JsonObject) -> dict[str, str]:
    """Return the offered tools and the first lines of their descriptions."""
    offered: dict[str, str] = {}
    for tool in objects(body.get("tools")):
        name, function = tool_name(tool), tool.get("function")
        if name is not None and is_object(function):
            about = str(function.get("description") or "").strip()
            offered[name] = _cut(about.partition("\n")[0], 100)
    return offered


def _cut(text: str, length: int = SAID_CHARACTERS) -> str:
    return text if len(text) <= length else text[:length] + "…"


# --- how to say it


class _Answer:
    """What the assistant says to a request: words, or calls."""

    def __init__(self, body: JsonObject) -> None:
        conversation = _Conversation(body)
        mark = f"call_{_digest(body)}"
        self.calls = [
            (f"{mark}_{index}", name, dumps(arguments).decode())
            for index, (name, arguments) in enumerate(conversation.calls())
        ]
        self.words = "" if self.calls else conversation.words()
        self.finish = "tool_calls" if self.calls else "stop"
        heard = sum(len(text_of(m.get("content")).split()) for m in objects(body.get("messages")))
        said = len(self.words.split()) + len(self.calls)
        #: Numbers of words: it has no tokens, and a bill adds up all the same.
        self.usage = {
            "prompt_tokens": heard,
            "completion_tokens": said,
            "total_tokens": heard + said,
        }

    def message(self) -> dict[str, JsonValue]:
        """Return it whole."""
        calls = [_call(*call) for call in self.calls]
        message = {"role": "assistant", "content": self.words or None, "refusal": None}
        return {**message, **({"tool_calls": calls} if calls else {})}

    def deltas(self) -> Iterator[JsonObject]:
        """Return it in small pieces."""
        yield {"role": "assistant", "content": ""}
        for word in _WORDS.findall(self.words):
            yield {"content": word}
        for index, (key, name, arguments) in enumerate(self.calls):
            yield {"tool_calls": [{"index": index, **_call(key, name, "")}]}
            yield {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


def _call(key: str, name: str, arguments: str) -> dict[str, JsonValue]:
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


def _digest(body: JsonObject) -> str:
    """Return a short mark of the conversation: the same for the same one, another for others."""
    text = repr(body.get("messages")).encode("utf-8", "replace")
    return hashlib.sha256(text).hexdigest()[:16]
