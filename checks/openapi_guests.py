"""What an invocation of a task's module takes and gives."""

from __future__ import annotations

from bascule.wire.api.addresses import INVOKE
from bascule.wire.api.guests import GuestExit, GuestLog, GuestOutput, Invocation
from checks.openapi_routes import NARROWING, USED, WRITE, Exchange, Schema, ref

_EVENTS = {"log": GuestLog, "stdout": GuestOutput, "stderr": GuestOutput, "exit": GuestExit}
_EVENT: Schema = {
    "anyOf": [ref(GuestLog), ref(GuestOutput), ref(GuestExit)],
    "description": "the data of the events log, stdout, stderr and, at the end, exit",
    "x-events": {name: ref(data) for name, data in _EVENTS.items()},
}
GUEST_SHAPES = (GuestLog, GuestOutput, GuestExit)
GUEST_ROUTES = {
    ("POST", INVOKE): Exchange(
        answers={200: _EVENT},
        refusals=(
            *(*WRITE, *USED, "invalid_record", "wrong_state", "guest_refused"),
            *("bad_module", "guest_failed", "no_engine", "not_serving"),
        ),
        body=Invocation,
        optional=True,
        headers=NARROWING,
        media_type="text/event-stream",
    ),
}
