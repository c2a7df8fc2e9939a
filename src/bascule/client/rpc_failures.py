"""How a call over gRPC ended, in our terms."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import grpc
from grpc import aio

from bascule.client.followed import TooMuch
from bascule.client.http import ApiError, Unreachable
from bascule.errors import BasculeError
from bascule.wire.rpc_errors import DETAILS, code_in


@contextmanager
def errors_of(target: str) -> Generator[None, None, None]:
    """Raise in our terms what ends a call."""
    try:
        yield
    except aio.AioRpcError as error:
        raise _error(target, error) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # grpc's word for a call whose connection was closed here.
        raise Unreachable(f"{target}: the connection was given up") from None


def _error(target: str, error: aio.AioRpcError) -> BasculeError:
    """Return how a call ended, in our terms."""
    words = error.details() or error.code().name
    trailer = dict(error.trailing_metadata() or ()).get(DETAILS)
    code = code_in(trailer) if isinstance(trailer, bytes) else None
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        refused = f"{target}: the registry refuses the token of this node: {words}"
        return ApiError(0, code or "unauthenticated", refused)
    if code is not None:
        return ApiError(0, code, f"{target}: {words}")
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return Unreachable(f"{target}: the registry cannot be reached: {words}")
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return TooMuch(f"{target}: the registry sends more than this node takes: {words}")
    return Unreachable(f"{target}: {error.code().name}: {words}")
