"""``bascule chat``: talk to a model in the terminal, and see its tools at work.

One request to ``/v1/chat/completions`` of a running process for each turn: the answer goes to
standard output as it arrives, what the tools do to standard error. Whatever a model or a tool says
is shown through ``render_safe``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack, aclosing, suppress
from importlib import import_module

from bascule.cli.command import print_json, run_async, shown
from bascule.cli.command_line import typed
from bascule.cli.endpoint import api_options, reach
from bascule.cli.failures import report
from bascule.cli.parser import EXIT_WAITING, Parser, declared, option, switch
from bascule.cli.table import Colour, paint
from bascule.cli.task_choice import chosen_task, has_token
from bascule.client.http import ApiClient, ApiError, Unreachable
from bascule.client.tools import ToolsClient
from bascule.clock import SYSTEM_CLOCK
from bascule.demo.rehearsal import REHEARSAL
from bascule.errors import BasculeError
from bascule.lifetime import Lifetime
from bascule.model.json import JsonObject, JsonValue, is_array, is_object, objects
from bascule.policy.characters import render_safe
from bascule.wire.strict_json import StrictJsonError, loads

_UNAUTHENTICATED = 401
_PROMPT = "> "
_EXAMPLES = """\
  bascule chat
  bascule chat --task demo "what can you do"
  bascule chat --model openai/gpt-5 --json "which notes are there?"
  git log | bascule chat -

Without a PROMPT it starts a conversation: Ctrl-C ends an answer, Ctrl-D the chat; /help says more.
The answer goes to standard output, the activity of tools to standard error. Without a backend the
model is the built-in script rehearsal; tell it, for example: call notes.list_notes
"""
_HELP = """\
/tools   the tools that may be called
/model   the model that answers; /model NAME takes another one
/clear   forget the conversation
/help    this
Ctrl-C ends an answer that is under way, Ctrl-D ends the chat."""
COMPLETIONS = "/v1/chat/completions"
#: Longer than any answer that is still coming: the server keeps silent streams alive.
TURN_SECONDS = 3_600.0
#: A question can be decided on for an hour and used for a while longer; so long the token counts.
_TOKEN_SECONDS = 7_200.0
#: Between two attempts to go on with a parked turn, where the server itself does not wait.
_PAUSE_SECONDS = 5.0
_DONE = b"[DONE]"
_LONG_MS = 1000


def fill(parser: Parser) -> None:
    """Add the options of ``chat``."""
    declared(
        parser,
        chat,
        *api_options(),
        option("--task", "ID", "the task whose tools are used (the default one)"),
        option("--model", "NAME", "the model: BACKEND/MODEL, or a unique name"),
        switch("--no-wait", "when a turn is parked because nobody decides, end with exit code 11"),
        option("prompt", "PROMPT", "send this and exit; - reads standard input", nargs="?"),
        epilog=_EXAMPLES,
    )


def chat(arguments: argparse.Namespace) -> int:
    """Say one thing, or hold a conversation."""
    prompt: str | None = arguments.prompt
    if prompt is None:
        if arguments.json:
            arguments.usage("--json goes with a PROMPT")
        return _converse(arguments)
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        arguments.usage("the PROMPT is empty")
    return run_async(_say_once(arguments, text))


async def _say_once(arguments: argparse.Namespace, text: str) -> int:
    screen = Screen(arguments)
    async with Conversation(arguments, screen) as conversation:
        await conversation.begin()
        turn = await conversation.say(text)
    if arguments.json:
        print_json(turn.completion())
    return 0 if turn.resume is None else EXIT_WAITING


def _converse(arguments: argparse.Namespace) -> int:
    """Read a line, take a turn, until the input ends. One loop serves all turns."""
    with suppress(ImportError):
        import_module("readline")  # being there, it gives input() a history of lines
    conversation = Conversation(arguments, Screen(arguments))
    with asyncio.Runner() as runner:
        try:
            runner.run(conversation.begin())
            if sys.stdin.isatty():
                print(paint("/help says what there is; Ctrl-D ends", "dim"), flush=True)
            while (line := _line()) is not None:
                _take_line(runner, conversation, line)
        finally:
            runner.run(conversation.close())
    return 0


def _line() -> str | None:
    """Return the next line; None at the end. Ctrl-C at the prompt only drops what was typed."""
    while True:
        try:
            return input(_PROMPT if sys.stdin.isatty() else "")
        except EOFError:
            return None
        except KeyboardInterrupt:
            print("\n(Ctrl-D ends the chat)", file=sys.stderr)


def _take_line(runner: asyncio.Runner, conversation: Conversation, line: str) -> None:
    """Take one turn; whatever goes wrong with it, the conversation goes on."""
    try:
        if line.startswith("/"):
            runner.run(conversation.command(line))
        elif line.strip():
            runner.run(conversation.say(line))
    except KeyboardInterrupt:
        conversation.screen.note("cancelled; it is not kept", "yellow")
    except BasculeError as error:
        conversation.screen.end_line()
        report(error, as_json=False)


class Conversation(Lifetime):
    """What was said so far, the model that answers, and the way to the process."""

    def __init__(self, arguments: argparse.Namespace, screen: Screen) -> None:
        self.screen = screen
        self.model: str = arguments.model or ""
        self._waits: bool = not arguments.no_wait
        self._arguments = arguments
        self._messages: list[JsonObject] = []
        self._opened = AsyncExitStack()
        self._api: ApiClient | None = None

    async def close(self) -> None:
        """Let go of the process; a token that was made for it ends."""
        self._api = None
        await self._opened.aclose()

    async def begin(self) -> None:
        """Reach the process, and say which model answers."""
        api = await self._reach()
        if not self.model:
            self.model, choices = await _default_model(api)
            self._say_model(choices)

    def _say_model(self, choices: int) -> None:
        name = shown(self.model)
        if self.model == REHEARSAL:
            note = f"model: {name}, a script that only follows instructions; for a real one: "
            self.screen.note(f"{note}{typed('up --backend NAME=BASE_URL')}", "yellow")
        else:
            more = f" (of {choices}; --model takes another one)" if choices > 1 else ""
            self.screen.note(f"model: {name}{more}")

    async def say(self, text: str) -> Turn:
        """Take one turn; only one that came to its end is kept.

        One that waits for approval is resumed until somebody has decided.
        """
        asked = {"role": "user", "content": text}
        body = {
            "model": self.model,
            "messages": [*self._messages, asked],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        turn = await self._begin_turn(body)
        said = [turn.said]
        while turn.resume is not None and self._waits:
            self.screen.note("  waiting on; Ctrl-C takes the question back", "yellow")
            began = SYSTEM_CLOCK.monotonic()
            resumed = {**body, "mcp": {"resume": turn.resume}}
            turn = await take_turn(await self._reach(), resumed, self.screen)
            said.append(turn.said)
            if turn.resume is not None:
                passed = SYSTEM_CLOCK.monotonic() - began
                await SYSTEM_CLOCK.sleep(max(0.0, _PAUSE_SECONDS - passed))
        if turn.resume is None:
            content = "\n\n".join(filter(None, said))
            self._messages += [asked, {"role": "assistant", "content": content}]
        return turn

    async def _begin_turn(self, body: JsonObject) -> Turn:
        try:
            return await take_turn(await self._reach(), body, self.screen)
        except ApiError as error:
            if error.status != _UNAUTHENTICATED or has_token(self._arguments):
                raise
            await self.close()  # our own token has run out; nothing was done with the request
            return await take_turn(await self._reach(), body, self.screen)

    async def command(self, line: str) -> None:
        """Do what a line that begins with a slash asks for."""
        name, _, rest = line.strip().partition(" ")
        if name == "/tools":
            await self._print_tools()
        elif name == "/clear":
            self._messages.clear()
            self.screen.note("forgotten")
        elif name == "/model":
            self.model = rest.strip() or self.model
            print(shown(self.model))
        elif name == "/help":
            print(_HELP)
        else:
            self.screen.note(f"there is no {shown(name)}; /help says what there is", "yellow")
        sys.stdout.flush()

    async def _print_tools(self) -> None:
        listing = await ToolsClient(await self._reach()).tools()
        for tool in listing.tools:
            about = shown(tool.description.strip().partition("\n")[0])
            print(f"{shown(tool.name)}  {paint(about, 'dim')}")
        if not listing.tools:
            print("no tools")
        for warning in listing.warnings:
            self.screen.note(f"warning: {shown(warning)}", "yellow")

    async def _reach(self) -> ApiClient:
        if self._api is None:
            task = await chosen_task(self._arguments)
            reached = reach(self._arguments, "client", task, seconds=_TOKEN_SECONDS)
            found = await self._opened.enter_async_context(reached)
            self._api = await self._opened.enter_async_context(found.api())
        return self._api


async def _default_model(api: ApiClient) -> tuple[str, int]:
    """Return the first model that is not the rehearsal, if there is one, and how many there are."""
    body = (await api.request("GET", "/v1/models")).body
    ids = [str(row.get("id")) for row in objects(body.get("data") if is_object(body) else None)]
    real = [name for name in ids if name not in (REHEARSAL, f"{REHEARSAL}/{REHEARSAL}")]
    # A model stands there twice, with its backend and bare; the full name is always clear.
    full = [name for name in real if "/" in name] or real
    return (full[0], len(full)) if full else (REHEARSAL, 1)


# --- one turn


class ChatFailed(BasculeError):
    """An answer that broke off, in the words of whoever broke it off."""

    code = "chat_failed"


class Screen:
    """Where an answer and the notes beside it are shown; with ``--json`` only the notes are."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._quiet: bool = arguments.json
        self._inside_a_line = False
        self._asked: set[str] = set()

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

    def question(self, note: JsonObject) -> None:
        """Show, once, what somebody is asked, and how to answer it."""
        id = str(note.get("approval_id"))
        if id in self._asked:
            return
        self._asked.add(id)
        what = shown(f"{note.get('server')}/{note.get('tool')}")
        self.note(f"  {what} needs approval:", "yellow")
        for line in render_safe(str(note.get("arguments") or "")).splitlines():
            self.note(f"  | {line}")
        approve = typed(f"approvals approve {shown(id)}", self._arguments)
        self.note(f"  in another terminal: {approve}", "yellow")

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
        #: The text without the words that say that the turn is parked.
        self.answer = ""
        #: What a turn is resumed by that waits for approval.
        self.resume: str | None = None
        self.finish_reason: JsonValue = None
        self._head: JsonObject = {}
        self._usage: JsonValue = None
        self._bascule: JsonValue = None

    @property
    def said(self) -> str:
        """What the next turn's history has of it."""
        return self.answer or self.refusal

    def completion(self) -> JsonObject:
        """Return the turn as one object, as an answer that is not streamed has it."""
        message = {"role": "assistant", "content": self.text, "refusal": self.refusal or None}
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        whole = {**self._head, "object": "chat.completion", "choices": [choice]}
        beside = {"usage": self._usage, "bascule": self._bascule}
        return whole | {name: value for name, value in beside.items() if value is not None}

    def take(self, chunk: JsonObject, screen: Screen) -> None:
        """Take one chunk in, and show what is new in it."""
        self._head = self._head or {k: chunk[k] for k in ("id", "created", "model") if k in chunk}
        self._usage = chunk.get("usage") or self._usage
        note = chunk.get("bascule")
        parked = is_object(note) and note.get("event") == "parked"  # which the notes say, too
        for choice in objects(chunk.get("choices")):
            self._take_choice(choice, screen, parked=parked)
        if is_object(note):
            self._take_note(note, screen)

    def _take_choice(self, choice: JsonObject, screen: Screen, *, parked: bool) -> None:
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        delta = choice.get("delta")
        if is_object(delta):
            text, refusal = str(delta.get("content") or ""), str(delta.get("refusal") or "")
            self.text += text
            self.refusal += refusal
            if not parked:
                self.answer += text
                screen.text(text + refusal)

    def _take_note(self, note: JsonObject, screen: Screen) -> None:
        event = note.get("event")
        if event == "call_started":
            screen.note(f"  calling {shown(str(note.get('name')))}")
        elif event == "approval_waiting":
            screen.question(note)
        elif event == "call_finished":
            screen.note(*_finished(note))
        elif event is None:
            self._bascule = note
            _say_ending(note, screen)
            paused = note.get("paused")
            if is_object(paused):
                self.resume = str(paused.get("resume"))
                for approval in objects(paused.get("approvals")):
                    screen.question(approval)


def _finished(note: JsonObject) -> tuple[str, Colour]:
    name = shown(str(note.get("name")))
    time = _time(note.get("duration_ms"))
    error = note.get("error")
    if error is None:
        return f"  {name} answered{time}", "green"
    if error == "mcp_approval_required":
        return f"  {name} is not decided on yet", "yellow"
    return f"  {name} failed{time}: {shown(str(error))}", "red"


def _time(milliseconds: JsonValue) -> str:
    if not isinstance(milliseconds, int | float):
        return ""
    if milliseconds < _LONG_MS:
        return f" in {milliseconds:.0f} ms"
    return f" in {milliseconds / _LONG_MS:.1f} s"


def _say_ending(note: JsonObject, screen: Screen) -> None:
    warnings = note.get("warnings")
    for warning in warnings if is_array(warnings) else ():
        screen.note(f"  warning: {shown(str(warning))}", "yellow")
    if note.get("budget_hit"):
        screen.note(f"  stopped: {shown(str(note['budget_hit']))} is used up", "yellow")


async def take_turn(api: ApiClient, body: JsonObject, screen: Screen) -> Turn:
    """Send a request and show its answer; raise BasculeError when it comes to no good end."""
    turn = Turn()
    events = api.events(COMPLETIONS, method="POST", body=body, seconds=TURN_SECONDS)
    async with aclosing(events):
        async for event in events:
            if event.data == _DONE:
                screen.end_line()
                return turn
            turn.take(_chunk(event.data), screen)
    raise Unreachable("the answer is incomplete: the stream ended early")


def _chunk(data: bytes) -> JsonObject:
    try:
        value = loads(data)
    except StrictJsonError as error:
        raise Unreachable(f"the server sent a chunk that cannot be read: {error}") from None
    if not is_object(value):
        raise Unreachable("the server sent a chunk that is not a JSON object")
    error = value.get("error")
    if is_object(error):
        raise ChatFailed(str(error.get("message") or "the answer broke off"))
    return value
