"""How much of servers' logs a legacy session wants to hear: kept here, for a seal cannot change."""

from __future__ import annotations

from typing import TypeGuard

from bascule.doors.gateway.messages import RpcError
from bascule.doors.gateway.per_token import PerToken
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


class LogLevels(PerToken[LogLevel]):
    """The least serious level that is wanted, by token and session; none is kept for no logs."""

    def __init__(self) -> None:
        super().__init__(most=MAX_PER_TOKEN, tokens=MAX_TOKENS)
