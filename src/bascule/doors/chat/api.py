"""The routes of the chat door: ``/v1/chat/completions`` and ``/v1/models``.

The token's task says which tools there are; the request may narrow them. With MCP on, the loop
holds the conversation and the answer carries a ``bascule`` object; with MCP off, request and answer
pass as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from bascule.asgi.errors import Refused
from bascule.asgi.guard import BodyRule, GuardedRoute, direct_route, route
from bascule.asgi.json import as_object, json_response, read_body, send_json
from bascule.asgi.presence import while_connected
from bascule.asgi.speaker import speaker
from bascule.asgi.turnstile import Turnstile
from bascule.audit.metrics import Metrics
from bascule.audit.parked_turns import MemoryTurns, ParkedTurns
from bascule.auth.identity import Principal
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.doors.chat.errors import UnknownUrl, openai_error
from bascule.doors.chat.held_results import HeldResults
from bascule.doors.chat.options import Asked, read_asked
from bascule.doors.chat.parking import Questions, RequestParking
from bascule.doors.chat.passthrough import Passing
from bascule.doors.chat.stream import ChatStream, Ending
from bascule.doors.sessions import Sessions
from bascule.loop.answer import bascule_object, completion_object
from bascule.loop.backend import ChatUpstream
from bascule.loop.backends import Chosen
from bascule.loop.budgets import DEFAULT_SETTINGS, LoopSettings
from bascule.loop.events import Conclusion, Tell, unheard
from bascule.loop.request import BadChat, ChatRequest, read_chat
from bascule.loop.turns import converse
from bascule.model.decision import Decision
from bascule.model.json import JsonObject
from bascule.node.bridge.session import Session

MAX_BODY_BYTES = 10 * 1024 * 1024
_BODY = BodyRule(max_bytes=MAX_BODY_BYTES, seconds=60.0)
_ANY_BODY = BodyRule(max_bytes=MAX_BODY_BYTES, media_types=())
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_LONGEST_PATH = 200
SERVED = {"/v1/chat/completions": "POST", "/v1/models": "GET"}
_WHAT_IS_SERVED = (
    "Served are POST /v1/chat/completions, GET /v1/models and GET /v1/models/{model}; "
    "a client of the Responses API has to use Chat Completions"
)
# Servers that were simply not asked for are no news to whoever asked.
_UNREMARKABLE = frozenset({"not_default", "not_requested"})


class ModelChooser(Protocol):
    """Knows which backend answers for a model (``bascule.loop.backends.Backends`` does)."""

    async def choose(self, model: str) -> Chosen:
        """Return the backend for a model; raise UnknownModel."""
        ...

    async def models(self) -> Sequence[JsonObject]:
        """Return every model in OpenAI's form."""
        ...


class ChatParts(Struct, frozen=True, kw_only=True):
    """What the door works with besides sessions and backends."""

    settings: LoopSettings = DEFAULT_SETTINGS
    metrics: Metrics | None = None
    clock: Clock = SYSTEM_CLOCK
    #: Where turns wait for approval, and what takes questions back; in memory without.
    parked: ParkedTurns | None = None
    questions: Questions | None = None
    #: Of this process among workers, for the ids of what it keeps.
    mark: str = ""


_DEFAULT_PARTS = ChatParts()


def chat_routes(
    sessions: Sessions, backends: ModelChooser, parts: ChatParts = _DEFAULT_PARTS
) -> list[GuardedRoute]:
    """Return the routes, each for client tokens, with errors in OpenAI's shape."""
    door = ChatDoor(sessions, backends, parts)
    guarded = partial(route, permission="tools:use", errors=openai_error)
    direct = partial(direct_route, permission="tools:use", errors=openai_error)
    return [
        direct("/v1/chat/completions", door.completions, ["POST"], body=_BODY),
        guarded("/v1/models", door.models, ["GET"]),
        guarded("/v1/models/{model:path}", door.model, ["GET"]),
        guarded("/v1", _elsewhere, _METHODS, body=_ANY_BODY),
        guarded("/v1/{rest:path}", _elsewhere, _METHODS, body=_ANY_BODY),
    ]


async def _elsewhere(request: Request) -> ASGIApp:
    """Say what is served to whoever asks for another part of OpenAI's API."""
    path, method = request.url.path, request.method
    allowed = SERVED.get(path) or ("GET" if path.startswith("/v1/models/") else None)
    if allowed is not None:
        message = f"{path} takes {allowed}"
        raise Refused("method_not_allowed", message, headers={"Allow": allowed})
    raise UnknownUrl(f"{method} {path[:_LONGEST_PATH]} is not served here. {_WHAT_IS_SERVED}")


class _Job(Struct, frozen=True):
    """One conversation that is to be held."""

    principal: Principal
    asked: Asked
    chat: ChatRequest
    upstream: ChatUpstream


class ChatDoor:
    """The endpoints."""

    def __init__(self, sessions: Sessions, backends: ModelChooser, parts: ChatParts) -> None:
        self._sessions = sessions
        self._backends = backends
        self._parts = parts
        self.held = HeldResults(parts.clock, mark=parts.mark)
        self._parked = MemoryTurns(parts.clock) if parts.parked is None else parts.parked
        self._turnstile = Turnstile()

    async def completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a chat, with the tools that the caller's task allows executed here."""
        raw = await read_body(receive)
        asked = read_asked(raw, await as_object(raw), scope)
        principal = self._speaker(scope, asked)
        async with self._sessions.of(principal, *asked.narrowing) as session:
            enabled = session.is_enabled()
        chosen = await self._backends.choose(asked.model)
        if not enabled:
            if asked.options.resume is not None:
                raise BadChat("a turn cannot go on while MCP is off", param="mcp.resume")
            await Passing(chosen.upstream, asked.bytes_for(chosen.model))(scope, receive, send)
            return
        chat = read_chat({**asked.plain, "model": chosen.model})
        job = _Job(principal, asked, chat, chosen.upstream)
        if job.chat.stream:
            talk, usage = partial(self._talk, job), job.chat.wants_usage
            await ChatStream(talk, self._parts.clock, wants_usage=usage)(scope, receive, send)
            return
        ending = await while_connected(scope, receive, self._talk(job, unheard))
        await send_json(scope, send, completion_object(ending.conclusion, ending.bascule))

    def _speaker(self, scope: Scope, asked: Asked) -> Principal:
        """Return who asks, for whom: by the header, or by ``user`` where the task lets it."""
        named = self._sessions.takes_user(scope["principal"])
        return speaker(scope, asked.plain.get("user") if named else None)

    async def _talk(self, job: _Job, tell: Tell) -> Ending:
        """Hold a conversation, or go on with one that was parked."""
        parts = self._parts
        async with RequestParking(
            self._parked, job.principal, job.asked, parts.questions, parts.mark
        ) as parking:
            chat, warnings = self._whole(job, parking)
            conclusion, decisions = await self._converse(job, chat, tell, parking)
            if conclusion.paused is None:
                await parking.end()
        conclusion = replace(conclusion, warnings=(*conclusion.warnings, *warnings))
        kept = self.held.keep(job.principal.owner, conclusion)
        return Ending(kept, bascule_object(kept, decisions))

    def _whole(self, job: _Job, parking: RequestParking) -> tuple[ChatRequest, tuple[str, ...]]:
        """Put back what the caller could not send; a turn that was parked has it with it."""
        messages, warnings = job.chat.messages, ()
        if parking.parked is None:
            messages, warnings = self.held.restore(job.principal.owner, messages)
            if messages != job.chat.messages:
                parking.messages = messages
        return replace(job.chat, messages=parking.messages or messages), warnings

    async def _converse(
        self, job: _Job, chat: ChatRequest, tell: Tell, parking: RequestParking
    ) -> tuple[Conclusion, tuple[Decision, ...]]:
        async with self._sessions.of(job.principal, *job.asked.narrowing) as session:
            settings = self._parts.settings.of_task(await session.budgets())
            conclusion = await converse(
                chat,
                session,
                job.upstream,
                settings=job.asked.options.applied(settings).within(session.budget.limits),
                tell=tell,
                clock=self._parts.clock,
                metrics=self._parts.metrics,
                wait_turn=self._turnstile.enter,
                parking=parking,
            )
            return conclusion, _decisions(session)

    async def models(self, request: Request) -> ASGIApp:
        """List the models of all backends."""
        rows = await while_connected(request.scope, request.receive, self._backends.models())
        return json_response({"object": "list", "data": rows})

    async def model(self, request: Request) -> ASGIApp:
        wanted = request.path_params["model"]
        rows = await while_connected(request.scope, request.receive, self._backends.models())
        found = next((row for row in rows if row["id"] == wanted), None)
        if found is None:
            raise Refused("not_found", f"no backend answers for the model {wanted!r}")
        return json_response(found)


def _decisions(session: Session) -> tuple[Decision, ...]:
    """Return why servers were left out."""
    dropped = (decision for decision in session.decisions if not decision.allowed)
    return tuple(decision for decision in dropped if decision.reason not in _UNREMARKABLE)
