"""What a caller wishes beside a call's result: to hear of it, and to wait for approval."""

from __future__ import annotations

from typing import NamedTuple

from bascule.clock import rfc3339
from bascule.doors.gateway.caller import Caller
from bascule.doors.gateway.generation import LOG_LEVEL_KEY
from bascule.doors.gateway.log_levels import LogLevels, level_of
from bascule.doors.gateway.messages import NO_ID, RpcError, is_request_id
from bascule.doors.gateway.reply import Reply
from bascule.model.approval import RETURN, Asking, Waiting
from bascule.model.call import SCHEMA_KEPT, Beside, LogLevel, LogMessage, Progress
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.node.bridge.session import Session
from bascule.wire.frames import RequestId, notification
from bascule.wire.rpc_codes import INVALID_PARAMS
from bascule.wire.strict_json import dumps
from bascule.wire.trace import trace_of

WAIT_KEY = "bascule/approval_wait_ms"
#: How long a caller who takes a stream waits for approval where nothing else is said.
WAIT_SECONDS = 30.0
MAX_WAIT_MS = 600_000
_NO_META: JsonObject = {}
_WORDLESS = "2024-11-05"


class Wishes(NamedTuple):
    """What the bridge is told of them."""

    beside: Beside
    asking: Asking


def wants_news(meta: JsonValue) -> bool:
    """Say whether a caller asks to be told things before the result."""
    return is_object(meta) and ("progressToken" in meta or LOG_LEVEL_KEY in meta)


def wishes_of(
    caller: Caller, meta: JsonValue, reply: Reply, levels: LogLevels, session: Session
) -> Wishes:
    """Read a call's ``_meta``; raise RpcError for a wish that makes no sense."""
    said = _NO_META if meta is None else meta
    if not is_object(said):
        raise RpcError(INVALID_PARAMS, "params._meta: must be an object")
    level = _level(caller, said, levels)
    teller = Teller(reply, _token(said), level, caller.version)
    seconds = _seconds(caller, said, session)
    asking = Asking(wait=seconds, told=teller.waits) if seconds else RETURN
    if teller.token is None and level is None and "traceparent" not in said:
        return Wishes(SCHEMA_KEPT, asking)
    beside = Beside(
        on_progress=None if teller.token is None else teller.progress,
        on_log=None if level is None else teller.log,
        log_level=level,
        trace=trace_of(said),
        keeps_schema=True,
    )
    return Wishes(beside, asking)


def _token(meta: JsonObject) -> RequestId | None:
    token = meta.get("progressToken")
    if token is None or is_request_id(token):
        return token
    raise RpcError(INVALID_PARAMS, f"params._meta.progressToken: {NO_ID}")


def _level(caller: Caller, meta: JsonObject, levels: LogLevels) -> LogLevel | None:
    if not caller.streams:
        return None
    if not caller.modern:
        return levels.get(caller.principal.token_id, caller.session_id)
    said = meta.get(LOG_LEVEL_KEY)
    return None if said is None else level_of(said, f"params._meta[{LOG_LEVEL_KEY!r}]")


def _seconds(caller: Caller, meta: JsonObject, session: Session) -> float:
    """Return for how long to wait for approval: the caller's word, the task's, or the usual."""
    said = meta.get(WAIT_KEY)
    if said is not None:
        if type(said) is not int or not 0 <= said <= MAX_WAIT_MS:
            words = f"params._meta[{WAIT_KEY!r}]: must be a whole number up to {MAX_WAIT_MS}"
            raise RpcError(INVALID_PARAMS, words)
        return said / 1000
    policy = session.policy
    if policy is not None and policy.approval_wait_ms is not None:
        return policy.approval_wait_ms / 1000
    return WAIT_SECONDS if caller.streams else 0.0


class Teller:
    """Tells one caller what goes on, under the caller's own token, and only ever forwards."""

    __slots__ = ("_last", "_level", "_reply", "_worded", "token")

    def __init__(
        self, reply: Reply, token: RequestId | None, level: LogLevel | None, version: str
    ) -> None:
        self._reply = reply
        #: Whether the version lets progress have words.
        self._worded = version != _WORDLESS
        self._level = level
        self._last: float | None = None
        self.token = token

    def progress(self, step: Progress) -> None:
        """Tell of a step; the protocol has none that goes back."""
        if self._last is not None and step.progress <= self._last:
            return
        self._last = step.progress
        params: dict[str, JsonValue] = {"progressToken": self.token, "progress": step.progress}
        if step.total is not None:
            params["total"] = step.total
        if step.message is not None and self._worded:
            params["message"] = step.message
        self._reply.tell(notification("notifications/progress", dumps(params)))

    def log(self, message: LogMessage) -> None:
        """Tell what a server logs."""
        params: dict[str, JsonValue] = {"level": message.level, "data": message.data}
        if message.logger is not None:
            params["logger"] = message.logger
        self._reply.tell(notification("notifications/message", dumps(params)))

    def waits(self, question: Waiting) -> None:
        """Tell that the call waits for somebody's approval, in whatever way the caller hears of."""
        until = rfc3339(question.expires_at)
        words = f"waits for approval {question.approval_id} (open until {until})"
        if self.token is not None:
            self.progress(Progress(0, message=words))
        elif self._level is not None:
            self.log(LogMessage("notice", words, "bascule"))
        else:
            self._reply.comment(words)
