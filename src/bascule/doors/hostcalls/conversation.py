"""One conversation of a guest: what it asks, held by the loop, and the body it reads of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from enum import IntFlag
from functools import lru_cache, partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.audit.ledger import MemoryLedger
from bascule.clock import Clock
from bascule.doors.chat.errors import tell_error
from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.guest import Guest
from bascule.doors.hostcalls.guest_tools import Arena, GuestTool, GuestTools
from bascule.doors.hostcalls.host import Host
from bascule.doors.hostcalls.parameters import ChatParameters
from bascule.loop.answer import bascule_object, completion_object
from bascule.loop.backends import Chosen
from bascule.loop.budgets import LoopSettings
from bascule.loop.events import Conclusion, Tell, unheard
from bascule.loop.request import BadChat, read_chat
from bascule.loop.turns import converse, single_turn
from bascule.model.json import JsonObject, JsonValue
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.node.assembly import Bridge
from bascule.node.bridge.opening import Opening
from bascule.node.contract import ToolSession

#: How long a question may be: as long as at the chat endpoint. It is written on the loop's thread.
MOST_ASKED = 10 * 1024 * 1024
_NO_SERVERS = Opening(request=SessionRequest(enabled=False, server_ids=()))


class Flags(IntFlag):
    """What ``cchat_send`` is to do; ``STREAM`` is ours."""

    METRICS = 1
    AUTO_TOOL_CALL = 2
    STREAM = 4


class Ending(Struct, frozen=True):
    """How a conversation ended, and who answered."""

    conclusion: Conclusion
    chosen: Chosen
    wants_usage: bool

    @property
    def beside(self) -> dict[str, JsonValue]:
        """Return what stands in a body beside a completion's own fields."""
        spear = {"backend": self.chosen.upstream.name, "model": self.chosen.model}
        hit = self.conclusion.budget_hit
        if hit is None:
            return {"_spear": spear}
        error = {"code": "tool_call_limit", "message": f"exceeded {hit}"}
        return {"_spear": spear, "error": error}

    def body(self) -> bytes:
        """Return the whole answer."""
        whole = completion_object(self.conclusion, bascule_object(self.conclusion))
        return msgspec.json.encode({**whole, **self.beside})

    def history(self) -> tuple[JsonObject, ...]:
        """Return what the conversation adds to its session; nothing while calls are open."""
        ended = self.conclusion
        if ended.tool_calls:
            return ()
        # What was said beside calls stands with them, and is no part of the last message.
        said = (one.get("content") for one in ended.appended if one["role"] == "assistant")
        before = "\n\n".join(text for text in said if isinstance(text, str) and text)
        content = (ended.content or "").removeprefix(f"{before}\n\n" if before else "")
        return (*ended.appended, {"role": "assistant", "content": content})


class Conversation(Struct, frozen=True, kw_only=True, eq=False):
    """What a guest has asked by ``cchat_send``."""

    guest: Guest
    messages: tuple[JsonObject, ...]
    tools: Mapping[str, GuestTool]
    parameters: ChatParameters
    flags: Flags
    #: How many bytes are asked, more or less.
    size: int

    @property
    def runs_tools(self) -> bool:
        """Say whether the calls of the model are made here."""
        return Flags.AUTO_TOOL_CALL in self.flags

    @property
    def measures(self) -> bool:
        """Say whether the guest wants to know what was used."""
        return Flags.METRICS in self.flags

    async def hold(self, tell: Tell = unheard) -> Ending:
        """Hold it to its end; raise BasculeError, or -EACCES for its servers."""
        if self.size > MOST_ASKED:
            words = f"the conversation has {self.size:,} bytes; at most {MOST_ASKED:,} are taken"
            raise BadChat(words, param="messages")
        host = self.guest.host
        chosen = await self._chosen(host)
        chat = read_chat({**self._request(), "model": chosen.model})
        async with tools_for(self.guest, self.parameters.narrowing) as session:
            settings = self.parameters.applied(await _settings(host, session))
            conclusion = await self._way()(
                chat,
                session,
                chosen.upstream,
                settings=settings,
                tell=tell,
                clock=host.clock,
                metrics=host.metrics,
            )
        self.guest.usage.calls += len(conclusion.calls)
        return Ending(conclusion, chosen, chat.wants_usage)

    async def _chosen(self, host: Host) -> Chosen:
        """Return who answers: the host's word counts before the guest's."""
        asked = self.parameters
        model = host.model or (f"{asked.backend}/{asked.model}" if asked.backend else asked.model)
        if not model:
            raise BadChat("no model is set: set the parameter model", param="model")
        if host.models is None:
            raise Fault(Errno.ENOSYS)
        return await host.models.choose(model)

    def _request(self) -> dict[str, JsonValue]:
        streams = Flags.STREAM in self.flags
        usage = streams and self.measures
        return {
            **({"stream_options": {"include_usage": True}} if usage else {}),
            **self.parameters.forwarded,
            "messages": self.messages,
            "tools": [tool.entry for tool in self.tools.values()],
            "stream": streams,
        }

    def _way(self) -> Callable[..., Awaitable[Conclusion]]:
        """Return how it is held: to its end with the guest's tools, or for one turn without."""
        if not self.runs_tools:
            return single_turn
        asked = self.parameters
        arena = Arena(asked.tool_arena_ptr, asked.tool_arena_len)
        own_tools = GuestTools(self.guest, self.tools, arena, asked.guest_output)
        return partial(converse, own_tools=own_tools)


def failed_body(error: Exception) -> bytes:
    """Return what a guest reads of a conversation that failed: not an errno, as in Spear."""
    told = tell_error(error)
    code: JsonObject = {} if told.code is None else {"code": told.code}
    return msgspec.json.encode({"error": {**code, "message": told.message}, **told.beside})


@asynccontextmanager
async def tools_for(guest: Guest, request: SessionRequest) -> AsyncGenerator[ToolSession]:
    """Open a session for a while; one that has no tools where the host has no bridge."""
    if guest.host.bridge is not None:
        session = await guest.sessions.open(request)
    elif request.enabled or request.server_ids:
        raise Fault(Errno.EACCES)
    else:
        session = _nowhere(guest.host.clock).open_session(_NO_SERVERS)
    try:
        yield session
    finally:
        await guest.sessions.close(session)


@lru_cache(maxsize=1)
def _nowhere(clock: Clock) -> Bridge:
    """Return a bridge that leads nowhere, and writes nothing down; to make one takes a while."""
    return Bridge.open(Snapshot(), clock=clock, ledger=MemoryLedger(limit=0))


async def _settings(host: Host, session: ToolSession) -> LoopSettings:
    """Return the host's settings within the task's budgets; tools answer models in JSON."""
    usual = replace(host.settings, always_json=True)
    return usual.of_task(await session.budgets()).within(host.opening.limits)
