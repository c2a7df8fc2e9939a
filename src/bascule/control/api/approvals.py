"""Approvals over HTTP: what is asked, watched, and decided by somebody else than who asked.

A decision names the digest of what was shown, and what cannot be shown whole cannot be approved.
Whoever is limited to some tasks sees no others: their approvals do not exist for them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi import sse
from bascule.asgi.errors import Refused
from bascule.asgi.guard import STILL, GuardedRoute, route
from bascule.asgi.json import json_response, read_as
from bascule.asgi.long_poll import long_poll
from bascule.asgi.parameters import milliseconds, only_parameters, word, wrong
from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approval_steps import unknown
from bascule.audit.approvals import ApprovalRefused, Approvals, Decision
from bascule.auth.identity import Principal
from bascule.clock import Clock
from bascule.control.api import query
from bascule.control.api.approval_feed import ApprovalFeed
from bascule.control.api.approval_view import decision, question, shown
from bascule.db.private_files import KeyUnusable
from bascule.model.approval import (
    STATES,
    Approval,
    ApprovalState,
    Decider,
    Separation,
    Shown,
)
from bascule.policy.separation import objection
from bascule.wire.api.addresses import APPROVALS
from bascule.wire.api.approvals import FILTERS, ApprovalPage, ApprovalQuestion, NewDecision
from bascule.wire.api.tools import MAX_WAIT_MS

LONGEST = 256
#: From so many people on, nobody decides on calls of their own, whatever token they use.
SEVERAL = 2
_PAGE = 50
_CURSOR = re.compile(r"([0-9]{1,12}\.[0-9]{1,17}):(apr-[0-9a-f]{24})", re.ASCII)
Still = Callable[[], Awaitable[Principal | None]]


def approval_routes(
    approvals: Approvals, *, people: Callable[[], int], clock: Clock
) -> list[GuardedRoute]:
    """Return the routes of approvals; ``people`` is how many of them the registry knows."""
    desk = _Desk(approvals, people, clock)
    one = f"{APPROVALS}/{{id}}"
    return [
        route(APPROVALS, desk.listing, ["GET"], permission="approvals:read"),
        route(f"{APPROVALS}/watch", desk.watch, ["GET"], permission="approvals:read"),
        route(one, desk.one, ["GET"], permission="approvals:read"),
        route(f"{one}/decision", desk.decide, ["POST"], permission="approvals:decide"),
    ]


def separation_of(setting: Separation | None, people: int) -> Separation:
    """Return who may decide: as the setting says, else as soon as there are several people."""
    return setting or ("person" if people >= SEVERAL else "token")


class _Desk:
    def __init__(self, approvals: Approvals, people: Callable[[], int], clock: Clock) -> None:
        self._approvals = approvals
        self._people = people
        self._clock = clock

    async def listing(self, request: Request) -> Response:
        """List approvals, the newest first; without ``state``, in every state."""
        only_parameters(request, "state", *FILTERS, "limit", "cursor")
        most = query.limit(request) or _PAGE
        wanted = replace(
            _filter(request), states=_states(request), before=_cursor(request), limit=most + 1
        )
        found = await self._approvals.listing(wanted)
        more = _cursor_after(found[most - 1]) if len(found) > most else None
        return json_response(ApprovalPage(tuple(map(shown, found[:most])), more))

    async def one(self, request: Request) -> Response:
        """Return a question with what it is about; ``wait_ms`` waits for a decision on it."""
        only_parameters(request, "wait_ms")
        wait_ms = milliseconds(request, "wait_ms", MAX_WAIT_MS)
        approval = await self._found(request)
        if wait_ms and approval.state == "pending":
            await long_poll(request, self._approvals.settled(approval.id, wait_ms / 1000))
            approval = await self._found(request)
        found = await self._question(approval)
        objection = self._objection(approval, query.principal(request))
        return json_response(replace(found, objection=objection))

    async def watch(self, request: Request) -> Response:
        """Stream what is pending now, then every step; nothing that it is about."""
        only_parameters(request, *FILTERS)
        feed = ApprovalFeed(self._approvals, _filter(request))
        return sse.EventStream(_events(feed, request.scope[STILL]), self._clock)

    async def decide(self, request: Request) -> Response:
        """Approve or deny what was shown under a digest; whoever asked may not."""
        only_parameters(request)
        wanted = await read_as(request, NewDecision)
        found = await self._found(request)
        if wanted.decision == "approve":
            await self._refuse_unseen(found)
        made = Decision(
            verb=wanted.decision,
            by=_decider(query.principal(request)),
            digest=wanted.digest,
            reason=wanted.reason,
            separation=self._separation,
        )
        try:
            return json_response(shown(await self._approvals.decide(found.id, made)))
        except ApprovalRefused as refused:
            raise _refusal(refused) from None

    @property
    def _separation(self) -> Separation:
        return separation_of(self._approvals.settings.separation, self._people())

    def _objection(self, approval: Approval, looking: Principal) -> str:
        """Say why whoever looks may not decide; nothing if they may."""
        if not looking.may("approvals:decide"):
            return f"the role {looking.role} looks, and does not decide"
        return objection(approval, _decider(looking), self._separation) or ""

    async def _refuse_unseen(self, found: Approval) -> None:
        """Refuse to approve what cannot be shown whole; one that was decided on has no contents."""
        question = await self._question(found)
        if question.whole:
            return
        now = await self._approvals.get(found.id)
        if now is not None and now.state == "pending":
            words = f"it cannot be shown whole, so it cannot be approved here: {question.missing}"
            raise Refused("not_shown_whole", words, details={"approval_id": question.id})

    async def _found(self, request: Request) -> Approval:
        """Return the approval that a request names, as it stands; one may have to be its task's."""
        id: str = request.path_params["id"]
        seen = query.principal(request).tasks
        found = await self._approvals.current(id)
        if found is None or not ApprovalFilter(tasks=seen).admits(found):
            raise _refusal(unknown(id))
        return found

    async def _question(self, approval: Approval) -> ApprovalQuestion:
        contents: Shown | None = None
        with suppress(KeyUnusable):
            contents = await self._approvals.shown(approval.id)
        return question(approval, contents)


async def _events(feed: ApprovalFeed, still: Still) -> AsyncGenerator[sse.Event, None]:
    async with aclosing(feed.steps()) as steps:
        async for approval in steps:
            await still()
            if approval is not None:
                yield sse.Event(data=shown(approval))


# --- deciding


def _decider(asking: Principal) -> Decider:
    return Decider(
        name=asking.name, token_id=asking.token_id, person=asking.person, maker=asking.made_by
    )


def _refusal(refused: ApprovalRefused) -> Refused:
    """Return what a decision is refused with: the first one, where there is one already."""
    found = refused.approval
    if found is None:
        return Refused(refused.code, str(refused))
    words, decided = str(refused), None
    if found.decided is not None:
        decided = msgspec.to_builtins(decision(found.decided))
        words += f": {found.decided.by} said {found.decided.verb}"
    stands = {"approval_id": found.id, "state": found.state, "decided": decided}
    return Refused(refused.code, words, details=stands)


# --- what is asked for


def _filter(request: Request) -> ApprovalFilter:
    task, server, tool, person = (_named(request, name) for name in FILTERS)
    return ApprovalFilter(
        task_id=task,
        server_id=server,
        tool_name=tool,
        person=person,
        tasks=query.principal(request).tasks,
    )


def _named(request: Request, name: str) -> str | None:
    text = word(request, name)
    if text is not None and not 1 <= len(text) <= LONGEST:
        raise wrong(name, f"must have 1 to {LONGEST} characters")
    return text


def _states(request: Request) -> tuple[ApprovalState, ...]:
    """Return the states of ``state=pending,approved`` and of further ones."""
    given: Sequence[str] = request.query_params.getlist("state")
    names = {name for text in given for name in text.split(",")}
    known: tuple[ApprovalState, ...] = tuple(state for state in STATES if state in names)
    if len(known) < len(names):
        raise wrong("state", f"must be some of: {', '.join(STATES)}, by commas")
    return known


def _cursor(request: Request) -> tuple[float, str] | None:
    given = word(request, "cursor")
    if given is None:
        return None
    found = _CURSOR.fullmatch(given)
    if found is None:
        raise wrong("cursor", "must be a next_cursor of an earlier page")
    return float(found[1]), found[2]


def _cursor_after(approval: Approval) -> str:
    return f"{approval.asked_at!r}:{approval.id}"
