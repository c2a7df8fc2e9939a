"""The pool of connections: states, reconnects and health."""

from tests.requirements.model import Requirement, Shown

ENTRIES = (
    Requirement(
        id="pool:doubt:record-timeout",
        text=(
            "A server is doubted only after its record's own `tool_timeout_ms`; a caller who "
            "leaves early ends no other caller's call."
        ),
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="pool:doubt:nobody-waits",
        text=(
            "A silent server's process is ended only when no call within its own deadline waits on "
            "it; calls that come meanwhile wait for the verdict."
        ),
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="pool:doubt:left-behind",
        text=(
            "A caller who left calls behind waits until the server has got past them; others do "
            "not."
        ),
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="pool:health:which",
        text="The status of a server says whether it is ok, slow, flooding or dead.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="pool:lazy",
        text="A server is connected at first use.",
        source="seed 000, Registry operations",
        state=Shown(),
    ),
    Requirement(
        id="pool:prewarm",
        text="A server with `prewarm` is connected at start.",
        source="seed 000, Registry operations",
        state=Shown(),
    ),
    Requirement(
        id="pool:reuse",
        text="Calls reuse the open connection of their server.",
        source="seed 000, Components",
        state=Shown(),
    ),
    Requirement(
        id="pool:restart-on-disconnect",
        text="A stdio server that ended is started again at the next call.",
        source="seed 000, Connection pool",
        state=Shown(),
    ),
    Requirement(
        id="pool:backoff",
        text="Reconnects wait with exponential backoff and jitter.",
        source="seed 000, Connection pool",
        state=Shown(),
    ),
    Requirement(
        id="pool:health:last-error",
        text="The state of a server carries its last error.",
        source="seed 000, Connection pool",
        state=Shown(),
    ),
    Requirement(
        id="pool:isolation",
        text="A dead, slow or flooding server does not harm calls on others.",
        source="seed 000, Connection pool",
        state=Shown(),
    ),
    Requirement(
        id="pool:states",
        text=(
            "A connection is in exactly one of disconnected, connecting, connected, degraded, "
            "reconnecting, down, parked and disabled."
        ),
        source="DESIGN.md 4, States of a connection",
        state=Shown(),
    ),
    Requirement(
        id="pool:states:legal",
        text="A connection moves only along the arrows of its state machine.",
        source="DESIGN.md 4, States of a connection",
        state=Shown(),
    ),
    Requirement(
        id="pool:states:seed-words",
        text="The seeds' words for states map to the states of the machine.",
        source="DESIGN.md 4, States of a connection",
        state=Shown(),
    ),
    Requirement(
        id="pool:parked",
        text="A server that keeps failing is parked and retried slowly.",
        source="DESIGN.md 4, States of a connection",
        state=Shown(),
    ),
    Requirement(
        id="pool:restart-on-change",
        text="A changed transport restarts that connection only, after the old process is gone.",
        source="seed 000, Observing SMS updates",
        state=Shown(),
    ),
    Requirement(
        id="pool:removed",
        text="Removing a record closes its connection.",
        source="seed 000, Observing SMS updates",
        state=Shown(),
    ),
    Requirement(
        id="pool:sharing:shared",
        text='Sessions share one connection to a server with `sharing = "shared"`.',
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="pool:sharing:session",
        text='Each session has its own connection to a server with `sharing = "session"`.',
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="pool:connect-timeout",
        text="A connect that exceeds `connect_timeout_ms` fails that server, with the reason.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="pool:status",
        text=(
            "A server's status gives state, reconnect count, last error, last connect and latency."
        ),
        source="seed 000, Observability",
        state=Shown(),
    ),
    Requirement(
        id="pool:health-checks",
        text="An idle connection is checked by keepalive, and a dead one is noticed.",
        source="seed 003, In Scope",
        state=Shown(),
    ),
    Requirement(
        id="pool:no-orphans",
        text="No retry task outlives the record it was started for.",
        source="seed 003, In Scope",
        state=Shown(),
    ),
    Requirement(
        id="pool:failure-skips",
        text="A server that fails to connect is reported and the rest go on.",
        source="seed 001, Lifecycle rules",
        state=Shown(),
    ),
    Requirement(
        id="pool:single-flight",
        text="Many callers of one unconnected server cause one connect.",
        source="seed 000, Connection pool",
        state=Shown(),
    ),
    Requirement(
        id="pool:turns",
        text="Starts of local servers take turns, and waiting for a turn counts against no limit.",
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="pool:turns:fair",
        text="Turns go round the sessions that wait, however many starts one of them wants.",
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="pool:start-timeout",
        text=(
            "A launcher that fetches has `start_timeout_ms` to start, a call waits no longer than "
            "its own limit, and the start goes on."
        ),
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="pool:starting-shown",
        text="The status of a start says what it is doing, with the last line the server said.",
        source="DESIGN.md 4, States of a connection",
        state=Shown(),
    ),
)
