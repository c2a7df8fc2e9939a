"""How a node follows the registry, and what it serves when it cannot."""

from tests.requirements.model import Deferred, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="sync:list-then-watch",
        text="A node lists at start and watches from that revision.",
        source="seed 000, Observing SMS updates",
        state=Shown(),
    ),
    Requirement(
        id="sync:event-refresh",
        text="A change in the registry is in force at the node soon after its event.",
        source="seed 000, Observing SMS updates",
        state=Shown(),
    ),
    Requirement(
        id="sync:poll",
        text="A poll with jitter finds changes that the watch missed.",
        source="seed 000, Observing SMS updates",
        state=Shown(),
    ),
    Requirement(
        id="sync:backoff",
        text="A lost watch is reopened with exponential backoff and jitter.",
        source="seed 000, Observing SMS updates",
        state=Shown(),
    ),
    Requirement(
        id="sync:resync",
        text=(
            "When its revision is too old or the stream fails, the node lists everything and "
            "watches from there."
        ),
        source="seed 000, Observing SMS updates",
        state=Shown(),
    ),
    Requirement(
        id="sync:atomic-swap",
        text="A snapshot is replaced as a whole: no session sees parts of two revisions.",
        source="seed 000, Observing SMS updates",
        state=Shown(),
    ),
    Requirement(
        id="sync:keep-old",
        text="When a refresh fails the old snapshot keeps serving and the node says `degraded`.",
        source="seed 000, Observing SMS updates",
        state=Shown(),
    ),
    Requirement(
        id="sync:rebuild-on-change",
        text=(
            "A new revision rebuilds tool sets, restarts changed transports only and drops "
            "changed lists."
        ),
        source="seed 000, Observing SMS updates",
        state=Shown(),
    ),
    Requirement(
        id="sync:unchanged",
        text="An unchanged revision rebuilds nothing.",
        source="seed 000, Spearlet data-plane fetch contract",
        state=Shown(),
    ),
    Requirement(
        id="sync:persisted",
        text=(
            "A node persists its snapshot with mode 0600 and starts from it without the "
            "control plane."
        ),
        source="DESIGN.md 4, Last known good",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="sync:persisted:no-secrets",
        text="No secret is in the persisted snapshot.",
        source="DESIGN.md 4, Last known good",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="sync:persisted:tokens",
        text=(
            "Client-token digests and task bindings are in the snapshot, so that clients are "
            "served without the control plane."
        ),
        source="DESIGN.md 4, Last known good",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="sync:implausible",
        text="An implausible answer of the control plane does not replace the snapshot.",
        source="DESIGN.md 4, Last known good",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="sync:slow",
        text="A slow control plane delays no call.",
        source="DESIGN.md 4, Last known good",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="sync:secrets-in-memory",
        text="Secrets that a node has resolved stay in memory while the control plane is down.",
        source="DESIGN.md 4, Last known good",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="sync:store-restored",
        text="A changed `store_id` makes the node list everything anew.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="sync:ttl",
        text="A snapshot older than its TTL is refreshed before it is called current.",
        source="seed 000, Spearlet: registry client and cache",
        state=Shown(),
    ),
)
