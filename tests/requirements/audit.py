"""Events, the audit trail and the ledger."""

from tests.requirements.model import Deferred, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="audit:call:fields",
        text="Each call leaves request id, session id, server, tool, time and status.",
        source="seed 000, Observability",
        state=Shown(),
    ),
    Requirement(
        id="audit:call:redacted",
        text="Recorded arguments are redacted as the record says.",
        source="seed 000, Observability",
        state=Shown(),
    ),
    Requirement(
        id="audit:denial",
        text="Each denial leaves server, tool and reason code.",
        source="seed 002, Security and compliance",
        state=Shown(),
    ),
    Requirement(
        id="audit:session-opened",
        text="Opening a session records its effective servers, tool count and decision log.",
        source="seed 002, Goals",
        state=Shown(),
    ),
    Requirement(
        id="audit:revision",
        text="Each recorded call carries the revision that decided it.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="audit:unambiguous",
        text="A recorded call names server and tool apart, never only the model-facing name.",
        source="seed 000, Tool naming and collision avoidance",
        state=Shown(),
    ),
    Requirement(
        id="audit:cancelled",
        text="A cancelled call is recorded as cancelled.",
        source="DESIGN.md 4, The path of a call",
        state=Shown(),
    ),
    Requirement(
        id="audit:ledger:one-transaction",
        text="Claiming a grant and writing the intent are one transaction.",
        source="DESIGN.md 4, Ledger",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="audit:ledger:group-commit",
        text="Concurrent rows share a commit.",
        source="DESIGN.md 4, Ledger",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="audit:ledger:survives-kill",
        text="An acknowledged row survives the kill of any process.",
        source="DESIGN.md 4, Ledger",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="audit:ledger:power",
        text='With `durability = "power"` an acknowledged row survives loss of power.',
        source="DESIGN.md 4, Ledger",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="audit:ledger:read-goes-on",
        text=(
            "Read-class calls may go on when the ledger is unreachable, if so set, spooled to disk."
        ),
        source="DESIGN.md 4, Ledger",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="audit:ledger:write-fails-closed",
        text="Write-class calls fail closed when the ledger is unreachable.",
        source="DESIGN.md 4, Ledger",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="audit:ledger:hash-chain",
        text="A changed or missing row breaks the hash chain of its node.",
        source="DESIGN.md 4, Ledger",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="audit:ledger:checkpoints",
        text="The control plane keeps signed checkpoints of each chain.",
        source="DESIGN.md 4, Ledger",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="audit:ledger:postgres",
        text="A split control plane keeps the ledger in its PostgreSQL.",
        source="DESIGN.md 4, Ledger",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="audit:query",
        text="The audit trail can be searched through API and command line.",
        source="DESIGN.md 5, Surfaces",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="audit:session-refused",
        text="A refused session leaves an event with task, caller, server and reason.",
        source="seed 002, Goals",
        state=Shown(),
    ),
    Requirement(
        id="audit:file",
        text=(
            "`bascule up` keeps sessions and calls in private files of JSON lines, bounded "
            "in number and size."
        ),
        source="seed 000, Observability",
        state=Shown(),
    ),
)
