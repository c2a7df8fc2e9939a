"""Asks a program about each approval that is pending, and decides as it says.

The hook is asked once for each question, and again after a restart. Whatever goes wrong means that
somebody else decides; nothing here ever holds a person up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections import OrderedDict
from pathlib import Path

import msgspec
from msgspec import Raw

from bascule.approval_hook import KEY_BYTES, HookAnswer, HookQuestion, signed_headers
from bascule.audit.approval_steps import ApprovalRefused, Decision
from bascule.audit.approvals import Approvals
from bascule.audit.log_lines import say
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.hook_address import hook_address
from bascule.db.private_files import private_key
from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    LaunchDenied,
    MalformedReply,
    OutcomeUnknown,
)
from bascule.model.approval import Approval, Decider, Shown, Verb
from bascule.model.whole_words import beginning
from bascule.outbound.egress import EgressRules
from bascule.outbound.failures import Unconnected
from bascule.outbound.http import HttpClient, HttpOptions, HttpRequest, Url
from bascule.outbound.proxies import proxy_for
from bascule.outbound.rules import NodeRules
from bascule.wire.api.approvals import MAX_REASON
from bascule.wire.strict_json import StrictJsonError, loads

KEY_FILE = "approval-hook.key"
#: How many questions are under way at once; the others wait in their order.
AT_ONCE = 8
ANSWER_BYTES = 64 * 1024
_HOOK = Decider(name="hook")
_OK = 200
_REDIRECTS = range(300, 400)
#: Somebody was faster, or the time is up.
_OVER = frozenset({"wrong_state", "not_found"})

logger = logging.getLogger("bascule.approvals")


class _Unheard(BasculeError):
    """The hook said nothing that counts; ``kind`` is what is said once in the log."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind


def hook_key(data: Path) -> bytes:
    """Return the key of a data directory's hook, made on first use; raise KeyUnusable."""
    return private_key(data / KEY_FILE, KEY_BYTES)


def open_hook(approvals: Approvals | None, rules: NodeRules, data: Path) -> ApprovalHook | None:
    """Return the hook that the settings name, if they do; raise InvalidRecord, KeyUnusable."""
    if approvals is None or approvals.settings.hook_url is None:
        return None
    url = hook_address(approvals.settings.hook_url, rules.egress)
    options = HttpOptions(
        connect_seconds=approvals.settings.hook_seconds,
        egress=EgressRules(rules.egress),
        insecure=True,  # the address was looked at: http goes to a local one
        proxy=proxy_for(url, rules, os.environ),
    )
    return ApprovalHook(approvals, url, hook_key(data), HttpClient(options))


class ApprovalHook:
    """The program that is asked first. ``run`` it beside whatever asks for approvals."""

    def __init__(
        self,
        approvals: Approvals,
        url: Url,
        key: bytes,
        client: HttpClient,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._approvals = approvals
        self._url = url
        self._key = key
        self._client = client
        self._clock = clock
        self._seconds = approvals.settings.hook_seconds
        #: What is pending, was asked or will be: when each expires. In order, as those that wait.
        self._known: OrderedDict[str, float] = OrderedDict()
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._news = asyncio.Event()
        self._said: set[str] = set()

    def __repr__(self) -> str:
        return f"ApprovalHook({self._url!r})"

    async def run(self) -> None:
        """Ask about what waits already, then about what comes, until cancelled."""
        leave = self._approvals.subscribe(self._hear)
        try:
            await self._hear_waiting()
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(self._work())
        finally:
            leave()
            await self._client.close()

    async def _hear_waiting(self) -> None:
        try:
            for approval in await self._approvals.pending():
                self._hear(approval)
        except (BasculeError, sqlite3.Error) as error:
            self._say("ledger", f"not asked about what waits already: {error}")

    def _hear(self, approval: Approval) -> None:
        """Take a step; at the start a question may be both listed and told."""
        if approval.state != "pending":
            self._forget(approval.id)
        elif approval.id not in self._known:
            self._forget_expired()
            self._known[approval.id] = approval.expires_at
            self._waiting[approval.id] = None
            self._news.set()

    def _forget_expired(self) -> None:
        """Forget what came to its end untold: the oldest, since all may wait equally long."""
        now = self._clock.now()
        while self._known and self._known[oldest := next(iter(self._known))] <= now:
            self._forget(oldest)

    def _forget(self, id: str) -> None:
        self._known.pop(id, None)
        self._waiting.pop(id, None)

    async def _next(self) -> str:
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        return self._waiting.popitem(last=False)[0]

    async def _work(self) -> None:
        while True:
            id = await self._next()
            try:
                await self._decide(id)
            except _Unheard as unheard:
                self._say(unheard.kind, str(unheard), id)
            except (BasculeError, sqlite3.Error) as error:
                self._say("ledger", f"its answer cannot be kept: {error}", id)

    async def _decide(self, id: str) -> None:
        """Ask the hook about a question and do as it says; raise _Unheard."""
        approval, shown = await self._approvals.get(id), await self._approvals.shown(id)
        if approval is None or approval.state != "pending" or approval.told:
            return
        if shown is None:
            raise _Unheard("sealed", "not asked: the arguments were sealed with another key")
        answer = await self._asked(approval, shown)
        if answer.decision == "ask":
            await self._approvals.note_told(id)
        else:
            await self._keep(answer, answer.decision)
        self._said.clear()  # it works: what goes wrong from now on is news

    async def _keep(self, answer: HookAnswer, verb: Verb) -> None:
        reason = beginning(answer.reason, MAX_REASON)
        decision = Decision(
            verb=verb, by=_HOOK, digest=answer.digest, reason=reason, separation="person"
        )
        try:
            await self._approvals.decide(answer.id, decision)
        except ApprovalRefused as refused:
            if refused.code not in _OVER:
                raise _Unheard(refused.code, f"its answer does not count: {refused}") from None

    async def _asked(self, approval: Approval, shown: Shown) -> HookAnswer:
        try:
            async with asyncio.timeout(self._seconds):
                status, body = await self._exchange(approval, shown)
        except (BasculeError, TimeoutError) as error:
            raise self._trouble(error) from None
        if status in _REDIRECTS:
            raise _Unheard("redirect", f"it redirects (HTTP {status}), which is not followed")
        if status != _OK:
            raise _Unheard("status", f"it answers HTTP {status}, not 200")
        return _read(body, approval)

    async def _exchange(self, approval: Approval, shown: Shown) -> tuple[int, bytes]:
        body = msgspec.json.encode(_question(approval, shown))
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Connection": "close",  # a kept one may be closed in the moment in which it is used
            **signed_headers(self._key, approval.id, body, self._clock.now()),
        }
        answer = await self._client.send(HttpRequest("POST", self._url, headers, body))
        try:
            return answer.status, await answer.read(ANSWER_BYTES) if answer.status == _OK else b""
        finally:
            answer.close()

    def _trouble(self, error: BasculeError | TimeoutError) -> _Unheard:
        late = isinstance(error, DeadlineExceeded | TimeoutError)
        if late or (isinstance(error, Unconnected) and error.why == "late"):
            words = f"no answer within {self._seconds} s (approvals.hook_seconds)"
            return _Unheard("late", words)
        if isinstance(error, Unconnected):
            return _Unheard(error.why, f"it cannot be reached: {error.words}")
        if isinstance(error, LaunchDenied):
            return _Unheard("egress", str(error))
        if isinstance(error, OutcomeUnknown):
            return _Unheard("broken", f"it gave no whole answer: {error}")
        if isinstance(error, MalformedReply):
            return _Unheard("body", f"it sent {error}")
        return _Unheard("other", str(error))

    def _say(self, kind: str, words: str, id: str | None = None) -> None:
        """Say once what is wrong, until the hook is heard again."""
        if kind not in self._said:
            self._said.add(kind)
            line = f"the approval hook at {self._url.origin}: {words}; others have to decide"
            say(logger, logging.WARNING, line, approval_id=id)


def _question(approval: Approval, shown: Shown) -> HookQuestion:
    call = approval.call
    return HookQuestion(
        id=approval.id,
        digest=approval.digest,
        asked_at=approval.asked_at,
        expires_at=approval.expires_at,
        task=call.task_id,
        server=call.server_id,
        tool=call.tool_name,
        rule=call.rule,
        person=call.person,
        caller=call.caller,
        definition_digest=call.definition_digest,
        decide_at=f"/admin/api/approvals/{approval.id}/decision",
        arguments_json=Raw(shown.arguments),
        definition_json=Raw(shown.definition),
        node=approval.node,
    )


def _read(body: bytes, approval: Approval) -> HookAnswer:
    """Return the answer to this very question; nothing of another one is repeated in the log."""
    try:
        answer = msgspec.convert(loads(body), HookAnswer)
    except StrictJsonError:
        raise _Unheard("json", "its answer is not JSON, or more than one value") from None
    except msgspec.ValidationError:
        raise _Unheard(
            "form",
            "its answer is not decision (approve, deny or ask), id, digest and perhaps reason",
        ) from None
    if answer.id != approval.id:
        raise _Unheard("id", "its answer is to another approval")
    if answer.digest != approval.digest:
        raise _Unheard("digest", "its answer has not the digest of what it was asked")
    return answer
