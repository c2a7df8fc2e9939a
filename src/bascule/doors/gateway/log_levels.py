"""How much of servers' logs a legacy session wants to hear: kept here, for a seal cannot change."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeGuard

from bascule.doors.gateway.messages import RpcError
from bascule.model.call import LOG_LEVELS, LogLevel
from bascule.model.json import JsonValue
from bascule.wire.rpc_codes import INVALID_PARAMS

#: How many sessions' wishes are kept for one token, and for how many tokens.
MAX_PER_TOKEN = 1024
MAX_TOKENS = 4096


def is_level(value: JsonValue) -> TypeGuard[LogLevel]:
    """Say whether a value is one of the levels."""
    return isinstance(value, str) and value in LOG_LEVELS


def level_of(value: JsonValue, place: str) -> LogLevel:
    """Return a level; raise RpcError for anything else."""
    if not is_level(value):
        raise RpcError(INVALID_PARAMS, f"{place}: must be one of: {', '.join(LOG_LEVELS)}")
    return value


class LogLevels:
    """The wishes, by token and session; the oldest go first."""

    def __init__(self) -> None:
        self._wishes: OrderedDict[str, OrderedDict[str, LogLevel]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._wishes.values()))

    def set(self, token: str, session_id: str, level: JsonValue) -> None:
        """Note a wish."""
        wanted = level_of(level, "params.level")
        own = self._wishes.setdefault(token, OrderedDict())
        self._wishes.move_to_end(token)
        own[session_id] = wanted
        own.move_to_end(session_id)
        if len(own) > MAX_PER_TOKEN:
            own.popitem(last=False)
        if len(self._wishes) > MAX_TOKENS:
            self._wishes.popitem(last=False)

    def wanted(self, token: str, session_id: str) -> LogLevel | None:
        """Return the least serious level that a session wants to hear; None for no logs."""
        own = self._wishes.get(token)
        return None if own is None else own.get(session_id)

    def forget(self, token: str, session_id: str) -> None:
        """Drop the wish of a session that ended."""
        own = self._wishes.get(token, OrderedDict())
        own.pop(session_id, None)
        if not own:
            self._wishes.pop(token, None)
