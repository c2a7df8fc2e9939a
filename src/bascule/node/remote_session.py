"""A session over a bridge elsewhere: every decision is made there, and told here.

A call is sent once. When no answer comes, the outcome says what is known: never delivered, too
late, or unknown.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from msgspec import UNSET
from msgspec.structs import replace

from bascule.client.http import ApiClient, ApiError, Unreachable
from bascule.client.tools import ToolsClient
from bascule.errors import BasculeError, ServerUnavailable, SessionRefused
from bascule.lifetime import Lifetime
from bascule.model.approval import Approving, Asking, asking_of
from bascule.model.call import NO_LIMITS, CallLimits, LimitOptions, Progress
from bascule.model.code import CODES, ErrorCode
from bascule.model.decision import Decision, deny
from bascule.model.explanation import Explanation, explained
from bascule.model.json import is_object
from bascule.model.name import prefixes, spellings
from bascule.model.outcome import (
    Failed,
    Failure,
    Outcome,
    Success,
    failure,
)
from bascule.model.status import Change, ServerStatus
from bascule.model.task import TaskBudgets
from bascule.node.bridge.opening import Opening
from bascule.node.bridge.own_call import noted, unnoted
from bascule.node.bridge.toolset import ToolSet
from bascule.node.changes import Changes, OnChange, Unsubscribe
from bascule.policy.budget import Budget, Exceeded
from bascule.policy.merging import merged
from bascule.wire.api.tools import OwnCallBody
from bascule.wire.faults import failure_of
from bascule.wire.strict_json import StrictJsonError

OUTPUT_ELSEWHERE = "the output is kept at the server: await session.output(handle, start, end)"
_RETRY_AFTER = 1.0
_INTERNAL = 500
#: What a server's refusals mean to the caller of a tool.
_MEANINGS: Mapping[str, ErrorCode] = {
    **{code: code for code in CODES},
    "unauthenticated": "mcp_policy_denied",
    "forbidden": "mcp_policy_denied",
    "person_refused": "mcp_policy_denied",
    "session_refused": "mcp_policy_denied",
    "invalid_request": "mcp_invalid_arguments",
    "invalid_json": "mcp_invalid_arguments",
    "invalid_record": "mcp_invalid_arguments",
    "body_too_large": "mcp_invalid_arguments",
}


class RemoteSession(Lifetime):
    """One caller's way across a bridge elsewhere.

    The server's word on who calls is the token's name, for the opening's ``person`` where the token
    acts for users; ``caller`` stays on this side. So do the session's own limits: the calls and the
    output of this session are counted here.
    """

    def __init__(self, api: ApiClient, opening: Opening) -> None:
        #: Of this side; the ledger of the server has its own, with which request ids begin.
        self.session_id = secrets.token_hex(8)
        self.caller = opening.caller
        self.budget = Budget(opening.limits)
        self._url = api.url
        self._client = ToolsClient(api, merged(opening.requests), opening.person)
        self._told: dict[str, Explanation] | None = None
        self._listed: set[tuple[str, str]] | None = None
        self._budgets: TaskBudgets | None = None
        self._changes = Changes()
        self._accepted = False
        self._closed = False
        self._revision = 0
        self._requests = 0

    async def start(self) -> None:
        """List the tools: whether the session is refused is known then."""
        await self.tools()

    async def budgets(self) -> TaskBudgets:
        """Return what the task leaves to one conversation; the server is asked for it once."""
        if self._budgets is None:
            try:
                self._budgets = (await self._client.session()).budgets
            except ApiError as error:
                raise _raised(error) from error
            self._accepted = True
        return self._budgets

    async def tools(self) -> ToolSet:
        """List the tools; raise SessionRefused when the session asks for more than it may have.

        A server that cannot be reached contributes nothing but a warning.
        """
        if self._closed:
            return self._nothing("the session is closed")
        try:
            listed = await self._client.tools()
        except Unreachable as error:
            return self._nothing(str(error))
        except ApiError as error:
            raise _raised(error) from error
        self._accepted, self._revision = True, listed.revision
        told, before = listed.explanations, self.statuses()
        self._told = {} if told is UNSET else _by_name(told)
        tools = [tool.descriptor for tool in listed.tools]
        self._announce_changes(before, {(tool.server_id, tool.digest) for tool in tools})
        decisions = (one.decision for one in self.explanations() if one.tool is None)
        return ToolSet(
            tools,
            revision=listed.revision,
            warnings=listed.warnings,
            denials=[decision for decision in decisions if not decision.allowed],
        )

    def _announce_changes(self, before: list[ServerStatus], tools: set[tuple[str, str]]) -> None:
        had, self._listed = self._listed, tools
        if had is None:
            return
        for now in self.statuses():
            if now not in before:
                self._changes.announce(Change(kind="state", server_id=now.server_id))
        for server in sorted({server for server, _ in had ^ tools}):
            self._changes.announce(Change(kind="tools", server_id=server))

    def _nothing(self, why: str) -> ToolSet:
        denial = deny("", None, "node", "unavailable", why)
        return ToolSet((), revision=self._revision, warnings=[why], denials=[denial])

    async def call(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        limits: CallLimits = NO_LIMITS,
        on_progress: Callable[[Progress], None] | None = None,
        approval: Approving = "wait",
        **own: Unpack[LimitOptions],
    ) -> Outcome:
        """Call a tool by the name a model uses; every failure comes back as an outcome.

        But for one: a session that the server refuses when it hears of it first raises that.
        Where the call needs approval it waits for it as a session of this process would.
        """
        asking = asking_of(approval)
        if self._closed:
            return self._failed(failure("mcp_unavailable", "the session is closed"))
        held = self.budget.reserve()
        if isinstance(held, Exceeded):
            refusal = failure("mcp_budget_exceeded", str(held), retry_after=_RETRY_AFTER)
            return self._failed(refusal)
        self.budget = held
        within = replace(limits, **own) if own else limits
        used: int | None = 0  # a caller who leaves in the middle has used a call
        try:
            outcome = await self._carried(name, arguments, within, on_progress, asking)
            used = _output_bytes(outcome)
        except SessionRefused:
            used = None
            raise
        finally:
            released = used is None
            self.budget = self.budget.release() if released else self.budget.commit(used or 0)
        return outcome

    async def _carried(
        self,
        name: str,
        arguments: Mapping[str, object] | None,
        limits: CallLimits,
        on_progress: Callable[[Progress], None] | None,
        asking: Asking,
    ) -> Outcome:
        given: Any = {} if arguments is None else arguments
        plain = dict(given) if is_object(given) else given
        try:
            outcome = await self._client.call(name, plain, limits, on_progress, asking)
        except StrictJsonError as error:
            return self._failed(failure("mcp_invalid_arguments", f"arguments: {error}"))
        except ApiError as error:
            if error.code == SessionRefused.code and not self._accepted:
                raise _raised(error) from error
            return self._failed(failure_of_answer(error))
        except Unreachable as error:
            return self._failed(failure_of(error))
        self._accepted, self._revision = True, outcome.revision
        return outcome

    def explain(self, name: str) -> Explanation:
        """Explain a tool or a server, from what the server said when it listed the tools last."""
        if self._told is None:
            return not_asked(name, self._url)
        found = self._told.get(name)
        return found if found is not None else self._unknown(name, self._told)

    def explanations(self) -> tuple[Explanation, ...]:
        """Return what the server said of every server and tool when it listed them last."""
        return tuple({id(one): one for one in (self._told or {}).values()}.values())

    async def explanation(self, name: str) -> Explanation:
        """Ask the server to explain a tool or a server."""
        try:
            explained = await self._client.explain(name)
        except ApiError as error:
            raise _raised(error) from error
        self._accepted = True
        return explained

    def statuses(self) -> list[ServerStatus]:
        """Return how the session's servers stood when the server listed the tools last."""
        return [
            ServerStatus(server_id=one.server, state="connected")
            if one.allowed
            else ServerStatus(server_id=one.server, state="down", last_error=one.rule)
            for one in self.explanations()
            if one.tool is None and (one.allowed or one.layer == "node")
        ]

    def subscribe(self, on_change: OnChange) -> Unsubscribe:
        """Call a function for what a list of tools shows to have changed since the one before."""
        return self._changes.subscribe(on_change)

    async def reconnect(self, server_id: str) -> None:
        """Have the server connect again what it has lost; raise ServerUnavailable if it cannot.

        A connection that works is shared with others, and is left alone.
        """
        found = await self.explanation(server_id)
        if not found.allowed:
            raise ServerUnavailable(found.rule or found.meaning)

    def decline(
        self, name: str, arguments: Mapping[str, object] | None, problem: Failure
    ) -> Outcome:
        """Return a call that a door does not make; the server is not told of it."""
        del name, arguments
        return self._failed(problem)

    async def note_own(
        self, name: str, arguments: Mapping[str, object] | None, outcome: Outcome, seconds: float
    ) -> Outcome:
        """Tell the server of a call of a tool that is the caller's own, so that it is written."""
        try:
            told = await self._client.note_own(OwnCallBody.of(name, arguments, outcome, seconds))
        except (StrictJsonError, ApiError, Unreachable) as error:
            return unnoted(outcome, error)
        return noted(outcome, told.request_id, told.revision)

    def read_output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Raise: what was cut is kept at the server."""
        raise RuntimeError(OUTPUT_ELSEWHERE)

    async def output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read bytes ``start`` to ``end`` of an output that was cut; KeyError if it is gone."""
        try:
            return await self._client.output(handle, start, end)
        except ApiError as error:
            if error.code == "not_found":
                raise KeyError(f"no output is kept under {handle!r}") from error
            raise _raised(error) from error

    async def close(self) -> None:
        """End the session; what the server keeps for it ends when it has been idle."""
        self._closed = True

    def _failed(self, problem: Failure) -> Failed:
        self._requests += 1
        return Failed(
            error=problem,
            request_id=f"{self.session_id}-{self._requests}",
            revision=self._revision,
        )

    def _unknown(self, name: str, told: Mapping[str, Explanation]) -> Explanation:
        """Explain a name that the server did not list: by its own server, if that is known."""
        for server, found in told.items():
            for prefix in prefixes(server, f"mcp.{server}"):
                if found.tool is None and name.startswith(prefix):
                    tool, why = name[len(prefix) :], found.decision
                    decision = deny(server, tool, why.layer, why.reason, why.rule)
                    if why.allowed:
                        decision = deny(server, tool, "platform", "unknown_tool", "tools/list")
                    return _undecided(decision, name, self._revision)
        decision = deny("", name, "platform", "unknown_tool", "tools/list")
        return _undecided(decision, name, self._revision)


def not_asked(name: str, url: str) -> Explanation:
    """Return what can be said of a name before the server has said anything."""
    decision = deny("", name, "node", "unavailable", "not asked yet")
    note = f"nothing was fetched from {url} yet: list the tools, or await explanation(name)"
    return _undecided(decision, name, 0, note)


def _undecided(decision: Decision, name: str, revision: int, *notes: str) -> Explanation:
    """Return an explanation of what this side knows no more of."""
    return explained(name, decision, revision, notes=notes, blocked_by=(decision,))


def _by_name(explanations: Sequence[Explanation]) -> dict[str, Explanation]:
    """Return explanations by every spelling of their names; what two claim stays the first's."""
    told = {found.name: found for found in explanations}
    tools = [(found.tool, found) for found in explanations if found.tool is not None]
    for tool, found in tools:
        for spelling in spellings(found.server, f"mcp.{found.server}", tool):
            told.setdefault(spelling, found)
    usable = Counter(tool for tool, found in tools if found.allowed)
    for tool, found in tools:
        if found.allowed and usable[tool] == 1:
            told.setdefault(tool, found)
    return told


def _raised(error: ApiError) -> BasculeError:
    """Return a refusal as it was raised on the other side."""
    if error.code != SessionRefused.code:
        return error
    server = error.details.get("server")
    return SessionRefused(
        str(error.details.get("reason", "refused")),
        str(error),
        server=server if isinstance(server, str) else None,
    )


def failure_of_answer(error: ApiError) -> Failure:
    """Return a refusal of the server itself as what a caller of a tool sees."""
    code = _MEANINGS.get(error.code)
    if code is None:
        broken = error.status >= _INTERNAL or error.status == 0
        code = "mcp_outcome_unknown" if broken else "mcp_unavailable"
    details = {"code": error.code, "status": error.status, **error.details}
    return failure(code, str(error), details=details)


def _output_bytes(outcome: Outcome) -> int | None:
    """Return how much a call gave; None when it did not run, and so used nothing."""
    if isinstance(outcome, Success) or CODES[outcome.error.code].reached:
        return len(outcome.text.encode("utf-8", "replace"))
    return None
