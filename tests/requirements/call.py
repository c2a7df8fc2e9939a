"""The path of a call: order of its steps, at most once, and that everything ends."""

from tests.requirements.model import Deferred, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="call:decide-again",
        text=(
            "After every wait (list, approval, place, connection, a second send) a call is decided "
            "again, directly before its intent."
        ),
        source="DESIGN.md 4, The path of a call",
        state=Shown(),
    ),
    Requirement(
        id="call:timeout:names-setting",
        text="The text of a timeout names the setting that would give the call more time.",
        source="DESIGN.md 4, The path of a call",
        state=Shown(),
    ),
    Requirement(
        id="call:resolve-exact",
        text="A call's target is found in the session's name table and never by splitting text.",
        source="DESIGN.md 4, The path of a call",
        state=Shown(),
    ),
    Requirement(
        id="call:decide-before-validate",
        text="A denied call is refused before its arguments are validated or a server is touched.",
        source="DESIGN.md 4, The path of a call",
        state=Shown(),
    ),
    Requirement(
        id="call:validate-before-send",
        text="Invalid arguments never leave the node.",
        source="DESIGN.md 4, The path of a call",
        state=Shown(),
    ),
    Requirement(
        id="call:schema:defaults",
        text="A required property that has a default may be missing, and nothing is filled in.",
        source="DESIGN.md 4, The path of a call",
        state=Shown(),
    ),
    Requirement(
        id="call:intent-before-dispatch",
        text="The intent of a call is durable before it is dispatched.",
        source="DESIGN.md 4, The path of a call",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="call:every-exit-written",
        text="Every exit of a call, cancellation included, leaves a record.",
        source="DESIGN.md 4, The path of a call",
        state=Shown(),
    ),
    Requirement(
        id="call:hygiene-last",
        text="What a caller gets has passed the hygiene step.",
        source="DESIGN.md 4, The path of a call",
        state=Shown(),
    ),
    Requirement(
        id="call:one-bridge",
        text="Nothing reaches a tool except through the bridge.",
        source="DESIGN.md 4, The path of a call",
        state=Shown(),
    ),
    Requirement(
        id="call:same-answer:python",
        text="The same policy gives the same answer at the section, the manager and the executor.",
        source="DESIGN.md 1, One bridge, many doors",
        state=Shown(),
    ),
    Requirement(
        id="call:same-answer:network",
        text=(
            "The same policy gives the same answer at the chat door, the tools API and the "
            "command line."
        ),
        source="DESIGN.md 1, One bridge, many doors",
        state=Shown(),
    ),
    Requirement(
        id="call:same-answer:guest",
        text="The same policy gives the same answer to a guest.",
        source="DESIGN.md 1, One bridge, many doors",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="call:once",
        text="A `tools/call` is sent once.",
        source="DESIGN.md 4, At most once",
        state=Shown(),
    ),
    Requirement(
        id="call:once:resend-unsent",
        text="A call is sent again when it provably was not delivered.",
        source="DESIGN.md 4, At most once",
        state=Shown(),
    ),
    Requirement(
        id="call:once:resend-idempotent",
        text="A call is sent again when the record marks its tool idempotent.",
        source="DESIGN.md 4, At most once",
        state=Shown(),
    ),
    Requirement(
        id="call:once:otherwise-unknown",
        text=(
            "A call that may have been delivered and has no answer is `mcp_outcome_unknown` "
            "and not sent again."
        ),
        source="DESIGN.md 4, At most once",
        state=Shown(),
    ),
    Requirement(
        id="call:deadline",
        text="Every wait of a call has an absolute deadline.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="call:progress:extends-idle",
        text="Progress extends the idle timer of a call.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="call:progress:never-cap",
        text="Progress never extends the deadline of a call.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="call:progress:reported",
        text="The caller's `on_progress` gets the server's progress.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="call:cancel:upstream",
        text="Cancelling a caller cancels the call at the server.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="call:bad-frame:own-call",
        text="A frame that cannot be read fails the call it belongs to when its id can be told.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="call:bad-frame:connection",
        text="A frame that cannot be read and has no id fails all calls on that connection, once.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="call:remote-ref",
        text="A remote `$ref` in a tool's schema is never fetched.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Shown(),
    ),
    Requirement(
        id="call:arguments-bytes",
        text="The bytes that were decided and digested are the bytes that are sent.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Shown(),
    ),
)
