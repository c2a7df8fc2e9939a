"""Which worker has what a request is about: by the mark in the id that the request names.

What has no such id, or one of a worker that there is no more, is for whoever got the request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias
from urllib.parse import parse_qs

from msgspec import Struct
from starlette.types import Scope

from bascule.asgi.errors import Refused
from bascule.asgi.head import head_of
from bascule.doors.chat.held_results import keeper_in
from bascule.doors.gateway.kept_outputs import NAME as READ_OUTPUT
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.worker import MARK, MAX_WORKERS, marked_worker
from bascule.wire.api.addresses import GATEWAY, NODE, NODE_ACCEPT, NODE_LEDGER
from bascule.wire.strict_json import StrictJsonError, loads

Owner: TypeAlias = int | None
METRICS = "/metrics"
#: The parameter that names a worker, where each has an answer of its own.
WORKER = "worker"
_OUTPUT = re.compile(rf"[0-9a-f]+{MARK}-out-\d+")
_SESSION_HEADER, _NAME_HEADER = b"mcp-session-id", b"mcp-name"
#: What a chat has somewhere if it names anything that a worker keeps.
_KEPT = re.compile(rb"call_bsc|turn-")


def _nobody(_: object) -> Owner:
    return None


def _never(_: object) -> bool:
    return False


def _always(_: object) -> bool:
    return True


class Ownership(Struct, frozen=True, kw_only=True):
    """How the requests at a path name the worker that has what they are about."""

    by_head: Callable[[Scope], Owner] = _nobody
    #: Whether only the body can tell.
    needs_body: Callable[[Scope], bool] = _never
    by_body: Callable[[bytes], Owner] = _nobody
    #: Whether no other worker has an answer.
    alone: bool = False
    #: Whether a body names what a worker still has when it is started again.
    lasting: Callable[[bytes], bool] = _never


def ownership_at(path: str) -> Ownership | None:
    """Return how requests at a route's path name a worker; None where they name none."""
    if path == GATEWAY or path.startswith(f"{GATEWAY}/"):
        return _GATEWAY
    return _OWNERSHIPS.get(path)


def _of_session(scope: Scope) -> Owner:
    """Return whose a legacy session is: calls, streams and outputs of it are there."""
    text = head_of(scope).fields.get(_SESSION_HEADER, b"").decode("latin-1")
    return marked_worker(text.partition(".")[2])


def _reads_output(scope: Scope) -> bool:
    fields = head_of(scope).fields
    return _SESSION_HEADER not in fields and fields.get(_NAME_HEADER) == READ_OUTPUT.encode()


def _of_read_output(body: bytes) -> Owner:
    params = _object(_read(body).get("params"))
    return _of_handle(_object(params.get("arguments")).get("handle"))


def _of_output(scope: Scope) -> Owner:
    return _of_handle(_parameter(scope, "handle"))


def _of_handle(handle: JsonValue) -> Owner:
    found = _OUTPUT.fullmatch(handle) if isinstance(handle, str) else None
    return None if found is None else int(found[1])


def _of_chat(body: bytes) -> Owner:
    """Return who parked the turn that goes on, or keeps results of a turn that goes on."""
    if _KEPT.search(body) is None:
        return None
    chat = _read(body)
    resumed = _object(chat.get("mcp")).get("resume")
    if isinstance(resumed, str):
        return marked_worker(resumed)
    return keeper_in(_call_ids(chat.get("messages")))


def _resumes(body: bytes) -> bool:
    """Say whether a parked turn goes on: those are on a worker's disk."""
    return isinstance(_object(_read(body).get("mcp")).get("resume"), str)


def _call_ids(messages: JsonValue) -> Iterator[str]:
    for message in messages if is_array(messages) else ():
        calls = _object(message).get("tool_calls")
        for call in calls if is_array(calls) else ():
            id = _object(call).get("id")
            if isinstance(id, str):
                yield id


def _named(scope: Scope) -> Owner:
    """Return the worker that is asked for by its number; raise Refused for what is none."""
    text = _parameter(scope, WORKER)
    if text is None:
        return None
    if re.fullmatch(r"[1-9][0-9]?", text) is None or int(text) > MAX_WORKERS:
        details = {"parameter": WORKER}
        raise Refused("invalid_request", f"{WORKER}: must be the number of one", details=details)
    return int(text)


def _parameter(scope: Scope, name: str) -> str | None:
    query = scope["query_string"]
    found = parse_qs(query.decode("latin-1")).get(name) if query else None
    return found[0] if found is not None and len(found) == 1 else None


def _read(body: bytes) -> JsonObject:
    """Return a body as an object; what is none is refused where it is answered."""
    try:
        return _object(loads(body))
    except StrictJsonError:
        return {}


def _object(value: JsonValue) -> JsonObject:
    return value if is_object(value) else {}


_GATEWAY = Ownership(by_head=_of_session, needs_body=_reads_output, by_body=_of_read_output)
_EACH = Ownership(by_head=_named, alone=True)
_OWNERSHIPS: Mapping[str, Ownership] = {
    "/api/v1/tools/output": Ownership(by_head=_of_output),
    "/v1/chat/completions": Ownership(needs_body=_always, by_body=_of_chat, lasting=_resumes),
    **dict.fromkeys((NODE, NODE_ACCEPT, NODE_LEDGER, METRICS), _EACH),
}
