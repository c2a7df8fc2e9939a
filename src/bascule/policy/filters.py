"""The tool filters over one server: what each layer says, and what they come to together.

They are for people who ask why; ``compose.py`` decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bascule.model.explanation import Filters, LayerFilter, MergedFilter
from bascule.model.pattern import Pattern
from bascule.policy.compose import Effective
from bascule.policy.coverage import covers, overlaps

#: More pairs than that are of no help to a reader, and cost.
MAX_PAIRS = 4096


def filters_of(effective: Effective, server: str) -> Filters | None:
    """Return the filters over a server; None for one that the session's task may not see."""
    record = effective.registry.servers.get(server)
    allowed = effective.bounds.allowed
    if record is None or (allowed is not None and server not in allowed):
        return None
    layers = tuple(_layers(effective, server, record.allowed_tools))
    merged = MergedFilter(
        together([layer.allow for layer in layers if layer.allow is not None]),
        tuple(dict.fromkeys(text for layer in layers for text in layer.deny)),
        any(layer.read_only for layer in layers),
    )
    return Filters(layers, merged)


def _layers(
    effective: Effective, server: str, allowed_tools: Sequence[str]
) -> Iterator[LayerFilter]:
    denied = effective.registry.platform.tool_denylist
    yield LayerFilter("platform", f"server {server}", _about(server, allowed_tools))
    found = [LayerFilter("platform", "platform", None, _about(server, denied))]
    for source in effective.filters:
        allow = None if source.allow is None else _about(server, source.allow.texts)
        deny = _about(server, source.deny.texts)
        found.append(LayerFilter(source.layer, source.source, allow, deny, source.read_only))
    yield from (one for one in found if one.allow is not None or one.deny or one.read_only)


def _about(server: str, patterns: Sequence[str]) -> tuple[str, ...]:
    parsed = map(Pattern.parse, patterns)
    return tuple(pattern.text for pattern in parsed if pattern.server in (None, server))


def together(lists: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return patterns for what all lists cover, about one server."""
    met: list[tuple[Pattern, ...]] = [()]
    for patterns in lists:
        if len(met) * len(patterns) > MAX_PAIRS:
            return tuple(f"any of {len(patterns)} patterns" for patterns in lists)
        parsed = [Pattern.parse(text) for text in patterns]
        pairs = (_meet(group, pattern) for group in met for pattern in parsed)
        met = list(dict.fromkeys(group for group in pairs if group is not None))
    return tuple(dict.fromkeys(" & ".join(pattern.text for pattern in group) for group in met))


def _meet(group: tuple[Pattern, ...], added: Pattern) -> tuple[Pattern, ...] | None:
    """Return patterns that must all hold, one more among them; None when none can."""
    if any(not overlaps(pattern.glob, added.glob) for pattern in group):
        return None
    if any(covers(added.glob, pattern.glob) for pattern in group):
        return group
    return (*(pattern for pattern in group if not covers(pattern.glob, added.glob)), added)
