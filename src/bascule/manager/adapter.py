"""One tool of one server, in the form agent frameworks take: a name, a definition, a call.

``call`` never raises for what goes wrong over there: the text then says what, for a model to
read, and ``is_error`` says that it is an error. A caller who is cancelled cancels the call.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from bascule.manager.events import ApprovalNeeded, ToolCompleted, ToolStarted
from bascule.manager.link import Link
from bascule.model.approval import Waiting, waiting_of
from bascule.model.content import media_of, readable
from bascule.model.name import door_name, hashed_door_name
from bascule.model.outcome import Outcome, Truncation
from bascule.model.tool import ToolDescriptor
from bascule.node.bridge.toolset import ToolSet
from bascule.policy.redact import redact
from bascule.wire.arguments import Arguments, read_arguments

_NOTHING = "[the tool returned no text]"


class ToolText(str):
    """What a tool said, as one text, with what there is to know about it.

    ``is_error``: the text is an error message, of the tool, the server or the bridge. ``code`` is
    then the bridge's error code. ``approval_id`` is the question that the call needs an answer to:
    the same call again uses it. ``truncated`` says that the text was cut, and how much there was;
    ``warnings`` are the bridge's, about a result that it gives all the same.
    """

    is_error: bool
    code: str | None
    request_id: str | None
    truncated: Truncation | None
    warnings: tuple[str, ...]
    approval_id: str | None

    def __new__(
        cls,
        text: str,
        *,
        code: str | None = None,
        request_id: str | None = None,
        truncated: Truncation | None = None,
        warnings: tuple[str, ...] = (),
        approval_id: str | None = None,
    ) -> Self:
        made = super().__new__(cls, text)
        made.is_error = code is not None
        made.code = code
        made.request_id = request_id
        made.truncated = truncated
        made.warnings = warnings
        made.approval_id = approval_id
        return made


class McpToolAdapter:
    """A tool that an agent was given. It works for as long as its server is configured."""

    def __init__(self, link: Link, tool: ToolDescriptor, name: str) -> None:
        self._link = link
        self._tool = tool
        self._name = name

    @property
    def name(self) -> str:
        """Return the name a model uses: ``{server}_{tool}``, with a hash where that is not one."""
        return self._name

    @property
    def server_name(self) -> str:
        return self._link.name

    @property
    def tool_name(self) -> str:
        """Return the server's own name for the tool."""
        return self._tool.name

    @property
    def description(self) -> str:
        """Return the server's description, made harmless for a model."""
        return str(self.definition()["description"])

    def definition(self) -> dict[str, Any]:
        """Return ``{"name", "description", "parameters"}``, as OpenAI's functions have it."""
        [entry] = ToolSet([self._tool], revision=0).openai()
        return {**entry["function"], "name": self._name}

    async def call(self, arguments: Arguments = None) -> ToolText:
        """Call the tool with a mapping, or with JSON text as a model writes it."""
        try:
            given = read_arguments(arguments)
        except ValueError as error:
            return ToolText(f"the arguments cannot be read: {error}", code="mcp_invalid_arguments")
        link, clock = self._link, self._link.agent.clock
        about, began = self._about(), clock.monotonic()
        tell = link.agent.tell
        tell(ToolStarted(**about, at=clock.now(), arguments=redact(given, "shape")))
        answer: ToolText | None = None

        def asked(waiting: Waiting) -> None:
            id, until = waiting.approval_id, waiting.expires_at
            tell(ApprovalNeeded(**about, at=clock.now(), approval_id=id, expires_at=until))

        try:
            answer = tool_text(await link.call(self._tool, given, asked))
            return answer
        finally:
            tell(
                ToolCompleted(
                    **about,
                    at=clock.now(),
                    request_id=None if answer is None else answer.request_id,
                    duration_ms=(clock.monotonic() - began) * 1000,
                    ok=answer is not None and not answer.is_error,
                    code="cancelled" if answer is None else answer.code,
                    result="" if answer is None else f"string({len(answer)})",
                )
            )

    def __repr__(self) -> str:
        return f"McpToolAdapter({self._name!r})"

    def _about(self) -> dict[str, str]:
        """Return what all events of a call say."""
        return {
            "agent_id": self._link.agent.id,
            "server": self._link.name,
            "tool": self._tool.name,
            "name": self._name,
            "call_id": secrets.token_hex(8),
        }


def tool_text(outcome: Outcome) -> ToolText:
    """Return what a model reads of an outcome: its text blocks, or what went wrong.

    A text that was cut is an answer, with the bridge's marker at its end; media are a note.
    """
    error = outcome.error
    if error is None:
        has_media = any(media_of(block) is not None for block in outcome.content)
        text = (readable(outcome.content) if has_media else outcome.text) or _NOTHING
    else:
        text = outcome.text or error.message
    waiting = waiting_of(outcome)
    return ToolText(
        text,
        code=None if error is None else error.code,
        request_id=outcome.request_id or None,
        truncated=outcome.truncated,
        warnings=outcome.warnings,
        approval_id=None if waiting is None else waiting.approval_id,
    )


def adapters(
    found: Iterable[tuple[Link, Iterable[ToolDescriptor]]],
    collided: Callable[[str, tuple[str, ...]], None],
) -> list[McpToolAdapter]:
    """Return adapters in the order given; tools that would share a name all get a hash in it."""
    pairs = [(link, tool) for link, tools in found for tool in tools]
    sharing: dict[str, list[str]] = {}
    for link, tool in pairs:
        sharing.setdefault(door_name(link.name, tool.name), []).append(f"{link.name}/{tool.name}")
    for name, tools in sharing.items():
        if len(tools) > 1:
            collided(name, tuple(tools))
    return [
        McpToolAdapter(link, tool, _name(link.name, tool.name, sharing)) for link, tool in pairs
    ]


def _name(server: str, tool: str, sharing: Mapping[str, list[str]]) -> str:
    plain = door_name(server, tool)
    return plain if len(sharing[plain]) == 1 else hashed_door_name(server, tool)
