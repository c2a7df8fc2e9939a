"""The control plane's store: revisions, watch, status and history."""

from tests.requirements.model import Deferred, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="registry:diff:fields",
        text="A difference shows changed fields, old and new, with literals hidden.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="registry:diff:expanded",
        text="A difference names the tools that patterns cover, where the tools are known.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="registry:diff:reason",
        text="A difference in access has the reason of that change.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="registry:nothing-there",
        text="Adopting or going back with a record that is not there is refused.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="registry:single-truth",
        text="The registry in the control plane is the only source of records for its nodes.",
        source="seed 000, Components",
        state=Shown(),
    ),
    Requirement(
        id="registry:no-execution",
        text="The control plane starts no server process and calls no tool.",
        source="seed 000, Components",
        state=Shown(),
    ),
    Requirement(
        id="registry:register",
        text="A record can be registered, read back and listed.",
        source="seed 000, Registry operations",
        state=Shown(),
    ),
    Requirement(
        id="registry:update",
        text="A record can be updated.",
        source="seed 000, Registry operations",
        state=Shown(),
    ),
    Requirement(
        id="registry:delete",
        text="A record can be deleted.",
        source="seed 000, Registry operations",
        state=Shown(),
    ),
    Requirement(
        id="registry:delete:missing",
        text="Deleting what does not exist answers not found and keeps the revision.",
        source="seed 000, SMS: registry store and service",
        state=Shown(),
    ),
    Requirement(
        id="registry:status",
        text="State and last error of each server are shown with its record.",
        source="seed 000, Registry operations",
        state=Shown(),
    ),
    Requirement(
        id="registry:revision:global",
        text="One revision counts the changes of all kinds.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:revision:gap-free",
        text="Revisions have no gap and follow the order of commits.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:revision:durable",
        text="A revision is durable before it is answered.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:revision:one-write",
        text="A write of many objects is one revision.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:import:keeps-policy",
        text=(
            "An import of a server that exists takes over how it is started or reached; what it "
            "may be used for stays, unless the file is a record of ours that names it."
        ),
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:import:credentials",
        text="An import warns of credentials written out, in variables and in headers.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="registry:import:changed-fields",
        text="An import shows the fields it changes, old and new, masked.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:store-id",
        text="A store has an id, which changes when the store is restored.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:list:snapshot",
        text="A list gives store id, revision and items of one snapshot.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:expected-revision",
        text=(
            "A write with an expected revision that is not current changes nothing and answers 412."
        ),
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:status-apart",
        text="A change of status never moves the revision.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:watch:resume",
        text="A watch from a revision gives every later change, in order, once.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:watch:kind",
        text="Each change of a watch names its kind.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:watch:since-too-old",
        text=(
            "A watch from below the compaction floor answers 410, and FAILED_PRECONDITION "
            "over gRPC."
        ),
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:watch:bookmarks",
        text="An idle watch carries bookmarks.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:watch:light",
        text="A watch event names revision, upserts and deletes.",
        source="seed 000, Observing SMS updates",
        state=Shown(),
    ),
    Requirement(
        id="registry:watch:slow-consumer",
        text="A watcher that cannot keep up loses no change and delays no writer.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:validate-on-write",
        text="A record that does not validate is refused with all problems and changes nothing.",
        source="seed 000, SMS: registry store and service",
        state=Shown(),
    ),
    Requirement(
        id="registry:import",
        text="Many records can be imported in one step, as a preview, an upsert or a replacement.",
        source="seed 000, SMS: registry store and service",
        state=Shown(),
    ),
    Requirement(
        id="registry:grpc:list",
        text="`ListMcpServers` gives revision and servers.",
        source="seed 000, Cluster mode (SMS-managed registry)",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="registry:grpc:watch",
        text="`WatchMcpServers` streams changes since a revision.",
        source="seed 000, Cluster mode (SMS-managed registry)",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="registry:grpc:write-admin",
        text="`UpsertMcpServer` and `DeleteMcpServer` are for administrators only.",
        source="seed 000, Cluster mode (SMS-managed registry)",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="registry:grpc:health",
        text="The gRPC port answers health and reflection.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="registry:grpc:node",
        text=(
            "A node reports status, takes work, fetches secrets and writes the ledger over "
            "one gRPC service."
        ),
        source="DESIGN.md 5, Surfaces",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="registry:read-only-nodes",
        text="A node's credential may read the registry and not write it.",
        source="seed 000, Cluster mode (SMS-managed registry)",
        state=Shown(),
    ),
    Requirement(
        id="registry:kinds",
        text="Tasks, profiles, platform and backends are kept like servers.",
        source="seed 002, Phase B: Profiles/Bundles and server tags",
        state=Shown(),
    ),
    Requirement(
        id="registry:history",
        text="Changes can be reviewed as a difference of records and of effective access.",
        source="seed 002, Phase B: Profiles/Bundles and server tags",
        state=Shown(),
    ),
    Requirement(
        id="registry:rollback",
        text="A rollback to an earlier revision is a new revision.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="registry:postgres",
        text="The same registry runs on PostgreSQL with several replicas.",
        source="DESIGN.md 1, One bridge, many doors",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="registry:split",
        text=(
            "Control plane and nodes run as separate processes, and nodes reach the control "
            "plane, never the reverse."
        ),
        source="DESIGN.md 1, One bridge, many doors",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="registry:embedded",
        text="`bascule up` runs control plane and node in one process.",
        source="DESIGN.md 1, One bridge, many doors",
        state=Shown(),
    ),
    Requirement(
        id="registry:invalid-never-stored",
        text="No write path stores a record that another path would refuse.",
        source="seed 000, SMS: registry store and service",
        state=Shown(),
    ),
    Requirement(
        id="registry:many-records",
        text=(
            "Ten thousand records cost work in proportion to what changes, and large work leaves "
            "the event loop to others."
        ),
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:lost",
        text="A data directory with tokens and without its registry is not served as an empty one.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="registry:compaction:clock",
        text="A clock that jumps back or ahead takes no history away.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
)
