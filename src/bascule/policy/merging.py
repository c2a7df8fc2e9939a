"""Several requests of a session as one, for a way that carries only one: never wider than any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import TypeAlias

from bascule.model.pattern import Pattern, pattern_problem
from bascule.model.session import SessionRequest
from bascule.policy.coverage import covers

Names: TypeAlias = tuple[str, ...]


def merged(requests: Sequence[SessionRequest]) -> SessionRequest:
    """Return one request that leaves no more than all of these leave together.

    It may leave less: of two allowlists it has the patterns of each that the other covers.
    """
    return reduce(_both, requests, SessionRequest())


def _both(one: SessionRequest, other: SessionRequest) -> SessionRequest:
    said = [request.enabled for request in (one, other) if request.enabled is not None]
    caps = (one.max_tool_output_bytes, other.max_tool_output_bytes)
    return SessionRequest(
        enabled=all(said) if said else None,
        server_ids=_either(one.server_ids, other.server_ids, _shared),
        tool_allowlist=_either(one.tool_allowlist, other.tool_allowlist, _covered),
        tool_denylist=_unique((*one.tool_denylist, *other.tool_denylist)),
        read_only=one.read_only or other.read_only,
        max_tool_output_bytes=min((cap for cap in caps if cap is not None), default=None),
    )


def _either(
    one: Names | None, other: Names | None, meet: Callable[[Names, Names], Names]
) -> Names | None:
    """Return what two lists leave; an absent one does not narrow."""
    if one is None or other is None:
        return other if one is None else one
    return meet(one, other)


def _shared(one: Names, other: Names) -> Names:
    return _unique(name for name in one if name in other)


def _covered(one: Names, other: Names) -> Names:
    """Return the patterns of each list that some pattern of the other covers."""
    pairs = [(Pattern.parse(a), Pattern.parse(b)) for a in one for b in other]
    return _unique(found for a, b in pairs if (found := _narrower(a, b)) is not None)


def _narrower(one: Pattern, other: Pattern) -> str | None:
    """Return the pattern for what both cover, where one of them covers the other's tools."""
    if None not in (one.server, other.server) and one.server != other.server:
        return None
    server = one.server or other.server
    for wide, narrow in ((one, other), (other, one)):
        if covers(wide.glob, narrow.glob):
            text = narrow.glob if server is None else f"{server}/{narrow.glob}"
            return text if pattern_problem(text) is None else None
    return None


def _unique(names: Iterable[str]) -> Names:
    return tuple(dict.fromkeys(names))
