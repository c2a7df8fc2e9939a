"""``bascule chat``: talk to a model in the terminal, and see its tools at work.

One request to ``/v1/chat/completions`` of a running process for each turn: the answer goes to
standard output as it arrives, what the tools do to standard error. Below: ``talking.py`` reads the
stream, ``endpoint.py`` finds the process and makes a token. Above: ``main``. Whatever a model or a
tool says is shown through ``render_safe``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from contextlib import AsyncExitStack, suppress
from importlib import import_module
from typing import Any

from bascule.cli.chat_turn import Screen, Turn, take_turn
from bascule.cli.command import print_json, run_async, shown
from bascule.cli.command_line import typed
from bascule.cli.endpoint import TOKEN_VARIABLE, add_api_options, reach
from bascule.cli.failures import report
from bascule.cli.table import paint
from bascule.cli.task_choice import chosen_task
from bascule.client.http import ApiClient, ApiError, open_api
from bascule.client.tools import ToolsClient
from bascule.demo.rehearsal import REHEARSAL
from bascule.errors import BasculeError
from bascule.model.json import is_array, is_object

_UNAUTHENTICATED = 401
_PROMPT = "> "
_EXAMPLES = """\
  bascule chat
  bascule chat --task demo "what can you do"
  bascule chat --model openai/gpt-5 --json "which notes are there?"
  git log | bascule chat -

Without a PROMPT it is a conversation: Ctrl-C ends an answer, Ctrl-D the chat; /help says more.
The answer goes to standard output, what the tools do to standard error. Without a backend the
model is the built-in rehearsal, a script: call notes.list_notes
"""
_HELP = """\
/tools   the tools that may be called
/model   the model that answers; /model NAME takes another one
/clear   forget the conversation
/help    this
Ctrl-C ends an answer that is under way, Ctrl-D ends the chat."""


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``chat``."""
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_api_options(parser)
    text = parser.add_argument
    text("--task", metavar="ID", help="the task whose tools are used (the default one)")
    text("--model", metavar="NAME", help="the model: BACKEND/MODEL, or a name that is unique")
    text("prompt", metavar="PROMPT", nargs="?", help="say this and end; - reads standard input")
    parser.set_defaults(run=chat)


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
    screen = Screen(quiet=arguments.json)
    async with Conversation(arguments, screen) as conversation:
        await conversation.begin()
        turn = await conversation.say(text)
    if arguments.json:
        print_json(turn.completion())
    return 0


def _converse(arguments: argparse.Namespace) -> int:
    """Read a line, take a turn, until the input ends. One loop serves all turns."""
    with suppress(ImportError):
        import_module("readline")  # being there, it gives input() a history of lines
    conversation = Conversation(arguments, Screen())
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


class Conversation:
    """What was said so far, the model that answers, and the way to the process."""

    def __init__(self, arguments: argparse.Namespace, screen: Screen) -> None:
        self.screen = screen
        self.model: str = arguments.model or ""
        self._arguments = arguments
        self._messages: list[dict[str, Any]] = []
        self._opened = AsyncExitStack()
        self._api: ApiClient | None = None

    async def __aenter__(self) -> Conversation:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

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
        """Take one turn; only one that came to its end is kept."""
        asked = {"role": "user", "content": text}
        body = {
            "model": self.model,
            "messages": [*self._messages, asked],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        try:
            turn = await take_turn(await self._reach(), body, self.screen)
        except ApiError as error:
            if error.status != _UNAUTHENTICATED or not self._may_renew:
                raise
            await self.close()  # our own token has run out; nothing was done with the request
            turn = await take_turn(await self._reach(), body, self.screen)
        self._messages += [asked, turn.message]
        return turn

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
            print(f"{shown(tool.model_name)}  {paint(about, 'dim')}")
        if not listing.tools:
            print("no tools")
        for warning in listing.warnings:
            self.screen.note(f"warning: {shown(warning)}", "yellow")

    @property
    def _may_renew(self) -> bool:
        return not (self._arguments.token or os.environ.get(TOKEN_VARIABLE))

    async def _reach(self) -> ApiClient:
        if self._api is None:
            task = await chosen_task(self._arguments)
            found = await self._opened.enter_async_context(reach(self._arguments, "client", task))
            api = open_api(found.url, found.token, tls_ca=found.tls_ca, insecure=found.insecure)
            self._api = await self._opened.enter_async_context(api)
        return self._api


async def _default_model(api: ApiClient) -> tuple[str, int]:
    """Return the first model that is not the rehearsal, if there is one, and how many there are."""
    body = (await api.request("GET", "/v1/models")).body
    rows = body.get("data") if is_object(body) else None
    ids = [str(row.get("id")) for row in rows if is_object(row)] if is_array(rows) else []
    real = [name for name in ids if name not in (REHEARSAL, f"{REHEARSAL}/{REHEARSAL}")]
    # A model stands there twice, with its backend and bare; the full name is always clear.
    full = [name for name in real if "/" in name] or real
    return (full[0], len(full)) if full else (REHEARSAL, 1)
