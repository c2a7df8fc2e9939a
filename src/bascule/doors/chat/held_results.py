"""Results of our tools, kept for a caller who has tools of its own to run first.

A turn may call our tools and the caller's. Ours are executed at once, the caller is handed its own
calls, and comes back with a history in which ours never happened. What the loop added is kept here
for a while, under call ids that cannot be guessed and that only the same token may use for the same
person, and is put back into the history it belongs to. Kept in this process alone, and bounded; the
ids have its mark, where it is one of several.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.auth.identity import Owner
from bascule.clock import Clock
from bascule.errors import BasculeError
from bascule.loop.events import Conclusion
from bascule.model.worker import MARK, marked_worker

KEEP_SECONDS = 3600.0
MAX_BYTES = 64 * 1024 * 1024
#: What all people of one token may keep together.
MAX_BYTES_TOKEN = 32 * 1024 * 1024
MAX_BYTES_EACH = 8 * 1024 * 1024
_ID = re.compile(rf"(call_bsc[0-9a-f]{{24}}(?:{MARK})?)_\d{{1,3}}")

Message = Mapping[str, Any]
Messages = tuple[Message, ...]


class ResultsGone(BasculeError):
    """A turn is continued whose results are no longer kept: going on would run its tools again."""

    code = "tool_results_expired"
    param = "messages"


class _Kept(Struct, frozen=True):
    owner: Owner
    until: float
    messages: bytes
    theirs: frozenset[str]


class HeldResults:
    """What was done for callers who have not come back yet."""

    def __init__(
        self,
        clock: Clock,
        *,
        mark: str = "",
        seconds: float = KEEP_SECONDS,
        max_bytes: int = MAX_BYTES,
        max_bytes_token: int = MAX_BYTES_TOKEN,
        max_bytes_each: int = MAX_BYTES_EACH,
    ) -> None:
        self._clock = clock
        self._mark = mark
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._max_bytes_token = max_bytes_token
        self._max_bytes_each = max_bytes_each
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes: Counter[Owner] = Counter()
        self._token_bytes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """Return how much is kept."""
        return self._bytes.total()

    def keep(self, owner: Owner, conclusion: Conclusion) -> Conclusion:
        """Keep what a caller who is handed its own calls will not send back.

        Returns the conclusion with the ids under which it is kept; unchanged when there is nothing
        to keep.
        """
        if not conclusion.tool_calls:
            return conclusion
        if not any(message["role"] == "tool" for message in conclusion.appended):
            return conclusion
        group = f"call_bsc{secrets.token_hex(12)}{self._mark}"
        ids = {str(call["id"]): f"{group}_{n}" for n, call in enumerate(conclusion.tool_calls)}
        renamed = [_renamed(message, ids) for message in conclusion.appended]
        self._add(group, owner, msgspec.json.encode(renamed), frozenset(ids.values()))
        calls = tuple({**call, "id": ids[str(call["id"])]} for call in conclusion.tool_calls)
        return replace(conclusion, tool_calls=calls)

    def restore(self, owner: Owner, messages: Messages) -> tuple[Messages, tuple[str, ...]]:
        """Put what is kept back into a history; return it, and warnings about what is gone.

        Raises ResultsGone when the very turn that is being continued is gone. Further back in a
        history it does no harm: the model's answer has what it needs. What is kept comes back once,
        however often a history names it: a small request must not become as large as one likes.
        """
        self._expire()
        if not any(map(_group, messages)):
            return messages, ()
        restored: list[Message] = []
        warnings: list[str] = []
        seen: set[str] = set()
        at = 0
        while at < len(messages):
            message, group = messages[at], _group(messages[at])
            after = _end_of_results(messages, at + 1) if group is not None else at + 1
            kept = None if group is None else self._find(owner, group)
            if kept is None or group in seen:
                restored += messages[at:after]
                if kept is None and group is not None:
                    warnings.append(_missed(last=after == len(messages)))
            else:
                restored += _joined(kept, message, messages[at + 1 : after])
            seen.add(group or "")
            at = after
        return tuple(restored), tuple(warnings)

    def _add(self, group: str, owner: Owner, messages: bytes, theirs: frozenset[str]) -> None:
        self._kept[group] = _Kept(owner, self._clock.monotonic() + self._seconds, messages, theirs)
        token = owner[0]
        self._bytes[owner] += len(messages)
        self._token_bytes[token] += len(messages)
        self._expire()
        while self._bytes[owner] > self._max_bytes_each:
            self._drop(next(g for g, kept in self._kept.items() if kept.owner == owner))
        while self._token_bytes[token] > self._max_bytes_token:
            self._drop(next(g for g, kept in self._kept.items() if kept.owner[0] == token))
        while self.bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _find(self, owner: Owner, group: str) -> _Kept | None:
        kept = self._kept.get(group)
        return kept if kept is not None and kept.owner == owner else None

    def _expire(self) -> None:
        """Let go what has been kept for long enough; the oldest come first."""
        now = self._clock.monotonic()
        while self._kept:
            group, kept = next(iter(self._kept.items()))
            if kept.until > now:
                return
            self._drop(group)

    def _drop(self, group: str) -> None:
        kept = self._kept.pop(group)
        self._bytes[kept.owner] -= len(kept.messages)
        if not self._bytes[kept.owner]:
            del self._bytes[kept.owner]
        self._token_bytes[kept.owner[0]] -= len(kept.messages)
        if not self._token_bytes[kept.owner[0]]:
            del self._token_bytes[kept.owner[0]]


def _group(message: Message) -> str | None:
    """Return under what the results of a message's turn are kept, if they are."""
    for call in message.get("tool_calls") or ():
        found = _ID.fullmatch(call["id"])
        if found is not None:
            return found[1]
    return None


def keeper_in(call_ids: Iterable[str]) -> int | None:
    """Return the worker that keeps the results of the last turn of which any are kept."""
    found = [one[1] for one in map(_ID.fullmatch, call_ids) if one is not None]
    return marked_worker(found[-1]) if found else None


def _end_of_results(messages: Messages, start: int) -> int:
    end = start
    while end < len(messages) and messages[end]["role"] == "tool":
        end += 1
    return end


def _joined(kept: _Kept, message: Message, given: Sequence[Message]) -> list[Message]:
    """Return the turns as they were, with the caller's results in their places."""
    messages: list[Message] = msgspec.json.decode(kept.messages)
    last = max(n for n, m in enumerate(messages) if m["role"] == "assistant")
    dropped = kept.theirs - {call["id"] for call in message["tool_calls"]}
    calls = [call for call in messages[last]["tool_calls"] if call["id"] not in dropped]
    results = {m["tool_call_id"]: m for m in (*messages[last + 1 :], *given)}
    ordered = [results[call["id"]] for call in calls if call["id"] in results]
    return [*messages[:last], {**messages[last], "tool_calls": calls}, *ordered]


def _missed(*, last: bool) -> str:
    text = "the results of tools that ran beside the caller's own calls are no longer kept"
    if last:
        raise ResultsGone(f"{text}: send the conversation again from before these calls")
    return text


def _renamed(message: Message, ids: Mapping[str, str]) -> Message:
    if message["role"] != "assistant":
        return message
    calls = [{**call, "id": ids.get(call["id"], call["id"])} for call in message["tool_calls"]]
    return {**message, "tool_calls": calls}
