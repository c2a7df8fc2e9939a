"""The trace that a request is part of (W3C Trace Context), as ``_meta`` carries it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bascule.model.json import JsonObject

_PARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[ -~]{1,512}")


def trace_of(meta: JsonObject) -> Mapping[str, str]:
    """Return ``traceparent`` and ``tracestate``, each exactly as it came, where it is valid.

    A state means nothing without its parent, and is left out with it.
    """
    parent, state = meta.get("traceparent"), meta.get("tracestate")
    if not isinstance(parent, str) or not _PARENT.fullmatch(parent):
        return {}
    if not isinstance(state, str) or not _STATE.fullmatch(state):
        return {"traceparent": parent}
    return {"traceparent": parent, "tracestate": state}
