"""Calls of nodes elsewhere, as the rows of their ledgers tell of them when they are taken in.

The figures of a control plane count these beside its own. Its metrics do not: those nodes have
metrics of their own, and whoever reads all of them would count a call twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import msgspec

from bascule.audit.chain import Row
from bascule.audit.events import OWN_TOOL, CallEvent, DenialsCounted
from bascule.audit.metrics import Metrics

logger = logging.getLogger("bascule.figures")

OnCall: TypeAlias = Callable[[CallEvent], None]
#: How an event begins that is of interest: the others are not looked at any further.
_BEGINNINGS: Final = (b'{"event":"call",', b'{"event":"denials_counted",')
_EVENT = msgspec.json.Decoder(CallEvent | DenialsCounted)
_DENIED: Final = "mcp_policy_denied"


class SentCalls:
    """Counts what nodes send; ``fresh_seconds`` is how old a call may be to be news."""

    def __init__(self, *, fresh_seconds: float) -> None:
        #: What was counted, apart from what this process did itself.
        self.metrics = Metrics()
        self._fresh_seconds = fresh_seconds
        self._listeners: list[OnCall] = []

    def subscribe(self, on_call: OnCall) -> Callable[[], None]:
        """Call a function with each call, until the returned one is called."""
        self._listeners.append(on_call)
        return lambda: self._listeners.remove(on_call)

    def note(self, rows: Iterable[Row], now: float) -> None:
        """Count the calls of rows that are new here.

        A node that was away sends what happened meanwhile: that is history, and no news.
        """
        for row in rows:
            event = _event_of(row)
            if event is None or now - event.timestamp > self._fresh_seconds:
                continue
            if isinstance(event, DenialsCounted):
                self.metrics.refused(None, None, _DENIED, event.count)
            else:
                self._call(event)

    def _call(self, event: CallEvent) -> None:
        _count(self.metrics, event)
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:  # somebody else's code: the others are told all the same
                logger.exception("a listener failed on a call that a node sent")


def _event_of(row: Row) -> CallEvent | DenialsCounted | None:
    """Return what a row says, if it is about calls; None for what another version may say."""
    if not row.event.startswith(_BEGINNINGS):
        return None
    try:
        return _EVENT.decode(row.event)
    except msgspec.MsgspecError:
        return None


def _count(metrics: Metrics, event: CallEvent) -> None:
    if event.reason == OWN_TOOL:
        metrics.own(event.tool_name).observe(event.code, event.duration_ms, event.output_bytes)
    elif event.status == "denied":  # its names may be inventions of a caller
        metrics.refused(event.server_id or None, event.tool_name or None, event.code or _DENIED)
    else:
        stats = metrics.tool(event.server_id, event.tool_name)
        stats.observe(event.code, event.duration_ms, event.output_bytes)
