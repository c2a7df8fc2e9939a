"""A conclusion in OpenAI's form: a completion object, or the last chunks of a stream.

The ``bascule`` object stands beside
OpenAI's own fields, where clients that do not know it look past it.
"""

from __future__ import annotations

import msgspec

from bascule.clock import rfc3339
from bascule.loop.events import (
    ApprovalWaiting,
    AwaitedApproval,
    Began,
    CallFinished,
    CallStarted,
    Conclusion,
    Delta,
    LoopEvent,
    Paused,
    TurnParked,
)
from bascule.model.decision import Decision
from bascule.model.json import JsonObject, JsonValue


def completion_object(conclusion: Conclusion, bascule: JsonObject) -> dict[str, JsonValue]:
    choice = {
        "index": 0,
        "message": _message(conclusion),
        "logprobs": conclusion.logprobs,
        "finish_reason": conclusion.finish_reason,
    }
    usage = {} if conclusion.usage is None else {"usage": conclusion.usage}
    whole = {**conclusion.head, "object": "chat.completion", "choices": [choice], **usage}
    return {**whole, "bascule": bascule}


def _message(conclusion: Conclusion) -> dict[str, JsonValue]:
    message: dict[str, JsonValue] = {
        "role": "assistant",
        "content": conclusion.content,
        "refusal": conclusion.refusal,
        **conclusion.extra,
    }
    if conclusion.tool_calls:
        message["tool_calls"] = list(conclusion.tool_calls)
    return message


def bascule_object(
    conclusion: Conclusion, decisions: tuple[Decision, ...] = ()
) -> dict[str, JsonValue]:
    """Return what happened, for whoever wants to know: calls, decisions, budgets."""
    return {
        "calls": msgspec.to_builtins(conclusion.calls),
        "decisions": msgspec.to_builtins(decisions),
        "warnings": list(conclusion.warnings),
        "revision": conclusion.revision,
        "budgets": dict(conclusion.budgets),
        "budget_hit": conclusion.budget_hit,
        "paused": None if conclusion.paused is None else _paused(conclusion.paused),
    }


def _paused(paused: Paused) -> dict[str, JsonValue]:
    return {"resume": paused.resume, "approvals": [_dated(one) for one in paused.approvals]}


def _dated(question: AwaitedApproval | ApprovalWaiting) -> dict[str, JsonValue]:
    """Return a question that is waited for, with its deadline as every face writes it."""
    return {**msgspec.to_builtins(question), "expires_at": rfc3339(question.expires_at)}


def chunk(
    head: JsonObject,
    delta: JsonObject,
    *,
    finish_reason: str | None = None,
    logprobs: JsonValue = None,
    **beside: JsonValue,
) -> dict[str, JsonValue]:
    """Return one chunk of a stream.

    Every chunk has a choice, if only with an empty delta: there are clients that read
    ``choices[0]`` without looking.
    """
    choice = {
        "index": 0,
        "delta": delta,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
    }
    return {**head, "object": "chat.completion.chunk", "choices": [choice], **beside}


class ChunkForm:
    """The chunks of one stream as JSON: what all of them have in common is encoded once."""

    def __init__(self, head: JsonObject) -> None:
        self._head = head
        whole = msgspec.json.encode(chunk(head, {}))
        self._before, _, self._after = whole.rpartition(b"{}")  # the delta is the last object

    def filled(self, fields: JsonObject, logprobs: JsonValue = None) -> bytes:
        """Return the chunk of a delta."""
        if logprobs is not None:
            return msgspec.json.encode(chunk(self._head, fields, logprobs=logprobs))
        return b"%b%b%b" % (self._before, msgspec.json.encode(fields), self._after)


class StreamForm:
    """What a conversation tells, as the chunks of one stream."""

    def __init__(self) -> None:
        self._head: JsonObject = {}
        self._form = ChunkForm({})

    def chunk(self, event: LoopEvent) -> bytes:
        """Return the chunk of what has happened."""
        if isinstance(event, Delta):
            return self._form.filled(event.fields, event.logprobs)
        if isinstance(event, Began):
            self._head, self._form = event.head, ChunkForm(event.head)
            return self._form.filled({"role": "assistant", "content": ""})
        return msgspec.json.encode(note_chunk(self._head, event))


def note_chunk(
    head: JsonObject, event: CallStarted | CallFinished | TurnParked
) -> dict[str, JsonValue]:
    """Return what a stream says when a tool is called, waits for approval, and has answered.

    Also that the turn is parked: in words of the answer, for whoever reads nothing else.
    """
    if isinstance(event, TurnParked):
        return chunk(head, {"content": event.text}, bascule={"event": "parked"})
    if isinstance(event, CallFinished):
        shown = {} if event.result is None else {"result": event.result}
        note = {"event": "call_finished", **msgspec.to_builtins(event.report), **shown}
    else:
        waits = isinstance(event, ApprovalWaiting)
        note = {
            "event": "approval_waiting" if waits else "call_started",
            **(_dated(event) if waits else msgspec.to_builtins(event)),
        }
    return chunk(head, {}, bascule=note)


def last_chunks(
    conclusion: Conclusion, bascule: JsonObject, *, wants_usage: bool
) -> list[dict[str, JsonValue]]:
    """Return how a stream ends: the caller's calls, the reason, and what was used."""
    head = conclusion.head
    chunks: list[dict[str, JsonValue]] = []
    if conclusion.tool_calls:
        calls = [{"index": i, **call} for i, call in enumerate(conclusion.tool_calls)]
        chunks.append(chunk(head, {"tool_calls": calls}))
    chunks.append(chunk(head, {}, finish_reason=conclusion.finish_reason, bascule=bascule))
    if wants_usage:
        chunks.append({**chunk(head, {}), "choices": (), "usage": conclusion.usage})
    return chunks
