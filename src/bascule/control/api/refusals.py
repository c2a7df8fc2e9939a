"""What the registry refuses, as the one error shape shows it: with its details for machines.

Below: the registry's errors and ``bascule.asgi.errors``. Above: every endpoint goes through
``told``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.control.registry.errors import RegistryError

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def told(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint whose refusals carry what the registry knows about them."""

    @wraps(endpoint)
    async def telling(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RegistryError as error:
            raise refusal(error) from error

    return telling


def refusal(error: RegistryError) -> Refused:
    """Return a registry's error in the terms of HTTP."""
    return Refused(error.code, str(error), details=error.details)
