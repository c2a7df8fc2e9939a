"""Composition of platform, task and session into what a session may use."""

from tests.requirements.model import NotPlanned, Requirement, Shown

ENTRIES = (
    Requirement(
        id="policy:explain:layers",
        text="An explanation has every layer that blocks, and the tool filters, merged.",
        source="seed 002, Observability",
        state=Shown(),
    ),
    Requirement(
        id="policy:explain:code",
        text="`explain` exits 10 for what policy denies.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="policy:pure",
        text=(
            "`compose` is a pure function: the same registry, task and session give the same "
            "result."
        ),
        source="seed 002, Subset composition algorithm",
        state=Shown(),
    ),
    Requirement(
        id="policy:outputs",
        text="The result carries effective servers, merged tool filters and a decision log.",
        source="seed 002, Subset composition algorithm",
        state=Shown(),
    ),
    Requirement(
        id="policy:platform-eligible",
        text="Only servers of the registry are eligible.",
        source="seed 002, Subset composition algorithm",
        state=Shown(),
    ),
    Requirement(
        id="policy:requested:session",
        text="When the session names servers, those are the requested ones.",
        source="seed 002, Subset composition algorithm",
        state=Shown(),
    ),
    Requirement(
        id="policy:requested:default",
        text="When the session names none, the task's default servers are requested.",
        source="seed 002, Subset composition algorithm",
        state=Shown(),
    ),
    Requirement(
        id="policy:intersection",
        text="The effective servers are the requested, the task's and the platform's, intersected.",
        source="seed 002, Subset composition algorithm",
        state=Shown(),
    ),
    Requirement(
        id="policy:deny-all-server",
        text="A server whose `allowed_tools` is empty is dropped with a reason.",
        source="seed 002, Subset composition algorithm",
        state=Shown(),
    ),
    Requirement(
        id="policy:tools-intersect",
        text="A tool must be allowed by record, task and session.",
        source="seed 002, Subset composition algorithm",
        state=Shown(),
    ),
    Requirement(
        id="policy:deny-is-veto",
        text="A deny at any layer vetoes a tool, whatever the other layers allow.",
        source="seed 002, Subset composition algorithm",
        state=Shown(),
    ),
    Requirement(
        id="policy:list-failure-isolated",
        text=(
            "A server whose `tools/list` fails contributes nothing and changes nothing for "
            "the others."
        ),
        source="seed 002, Subset composition algorithm",
        state=Shown(),
    ),
    Requirement(
        id="policy:reasons",
        text=(
            "Each dropped server and tool has a stable reason code (`unknown_server`, "
            "`not_allowed`, deny-all and so on)."
        ),
        source="seed 002, Subset composition algorithm",
        state=Shown(),
    ),
    Requirement(
        id="policy:narrowing-law",
        text="No layer can add a server or a tool that a layer above does not allow.",
        source="seed 002, Design principles",
        state=Shown(),
    ),
    Requirement(
        id="policy:constraint-law",
        text="Adding a constraint never adds a tool.",
        source="seed 002, Design principles",
        state=Shown(),
    ),
    Requirement(
        id="policy:session-narrows-server",
        text="A session may narrow the servers of its task.",
        source="seed 002, Three layers",
        state=Shown(),
    ),
    Requirement(
        id="policy:session-narrows-tools",
        text="A session may narrow the tools with an allowlist and a denylist.",
        source="seed 002, Three layers",
        state=Shown(),
    ),
    Requirement(
        id="policy:task-narrows-tools",
        text="A task's allowlist and denylist apply even when the session names its own.",
        source="seed 002, Three layers",
        state=Shown(),
    ),
    Requirement(
        id="policy:session-refused",
        text=(
            "A session that asks for a server outside the task's allowed set is refused with "
            "the reason."
        ),
        source="seed 002, Relationship between allow and default",
        state=Shown(),
    ),
    Requirement(
        id="policy:session-refused:disabled",
        text="A session that enables MCP under a task with MCP disabled is refused.",
        source="seed 002, Relationship between allow and default",
        state=Shown(),
    ),
    Requirement(
        id="policy:seed-session",
        text="The seed's session narrows its task to `gitlab`.",
        source="seed 002, Session override example (narrow to a smaller subset)",
        state=Shown(),
    ),
    Requirement(
        id="policy:empty-warning",
        text="An enabled session with no effective server gives a warning and goes on.",
        source="seed 002, Empty subset",
        state=Shown(),
    ),
    Requirement(
        id="policy:session-unknown-server",
        text=(
            "A server that the session names and the platform does not know is dropped with a "
            "reason."
        ),
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:platform:denylist",
        text="The platform record's denylist vetoes tools of every server.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:platform:approval",
        text=(
            "The platform record's default approval applies to every server, and a record "
            "cannot loosen it."
        ),
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:platform:rules",
        text="The platform record's rules apply to every server.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:disabled-server",
        text="A disabled server is dropped with a reason of its own.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:read-only",
        text="Under read-only, only read-class tools are left.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:read-only:unclassed",
        text="Under read-only, a tool that no effect pattern classes is not allowed.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:read-only:session",
        text="A session may ask for the read-only subset of what its task allows.",
        source="seed 000, Letting users choose MCP tools",
        state=Shown(),
    ),
    Requirement(
        id="policy:log:fields",
        text=(
            "Each entry of the decision log names server or tool, kept or dropped, layer, "
            "rule and reason code."
        ),
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:log:node-layer",
        text=(
            "The node appends `env_missing`, `list_timeout`, `unavailable` and "
            "`launch_denied` as a layer of its own."
        ),
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:log:one-source",
        text="Explain, command line, audit and errors show the same decision log.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:decide:lookup",
        text="Deciding a call is a lookup in what was compiled for the catalogue revision.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:decide:unlisted",
        text="A call on a tool that is not listed is never allowed.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:decide:conditions-only-tighten",
        text="A condition on arguments can deny or require approval and never allow.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:decide:off-session",
        text="A tool of a server outside the session is denied although the server is registered.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:decide:disabled-session",
        text="With MCP not enabled every MCP tool is denied, whatever its name's spelling.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:task-lists-without-default",
        text=(
            "A task's tool lists apply to a session that names its servers although the task "
            "has no defaults."
        ),
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:no-servers",
        text="A session without enabled servers sees no tool.",
        source="DESIGN.md 4, Default deny",
        state=Shown(),
    ),
    Requirement(
        id="policy:absent-allowlist",
        text="An absent allowlist in task or session does not narrow.",
        source="DESIGN.md 4, Default deny",
        state=Shown(),
    ),
    Requirement(
        id="policy:empty-allowlist",
        text="An empty allowlist in task or session allows nothing.",
        source="DESIGN.md 4, Default deny",
        state=Shown(),
    ),
    Requirement(
        id="policy:python-defaults",
        text=(
            "A server configured in code allows all tools unless told otherwise, visibly in "
            "its record."
        ),
        source="DESIGN.md 4, Default deny",
        state=Shown(),
    ),
    Requirement(
        id="policy:connected-registry-rules",
        text="A bridge connected to a registry takes what is allowed from the registry alone.",
        source="DESIGN.md 4, Default deny",
        state=Shown(),
    ),
    Requirement(
        id="policy:task-required:network",
        text="A network caller without a task cannot open a session.",
        source="DESIGN.md 4, Default deny",
        state=Shown(),
    ),
    Requirement(
        id="policy:task-required:in-process",
        text="An in-process caller may open a session without a task.",
        source="DESIGN.md 4, Default deny",
        state=Shown(),
    ),
    Requirement(
        id="policy:record-always-constrains",
        text="No task or session list can expose a tool outside the record's `allowed_tools`.",
        source="seed 002, Security and compliance",
        state=Shown(),
    ),
    Requirement(
        id="policy:invocation-override",
        text="Invocation metadata may override the servers of a task.",
        source="seed 002, Current implementation scope (important)",
        state=NotPlanned(
            "the seed defers it on purpose; a session's own parameters narrow a single run"
        ),
    ),
    Requirement(
        id="policy:pattern:star",
        text="`*` matches any run of characters, the empty one too.",
        source="seed 000, Minimal test plan",
        state=Shown(),
    ),
    Requirement(
        id="policy:pattern:question-mark",
        text="`?` matches exactly one character.",
        source="seed 000, Minimal test plan",
        state=Shown(),
    ),
    Requirement(
        id="policy:pattern:whole-name",
        text="A pattern matches the whole name, case-sensitively.",
        source="seed 000, Minimal test plan",
        state=Shown(),
    ),
    Requirement(
        id="policy:pattern:native-name",
        text="A pattern matches the server's own tool name, not the model-facing one.",
        source="seed 000, Minimal test plan",
        state=Shown(),
    ),
    Requirement(
        id="policy:pattern:server-qualified",
        text="`server/tool` limits a pattern to the tools of matching servers.",
        source="seed 000, Minimal test plan",
        state=Shown(),
    ),
    Requirement(
        id="policy:pattern:linear",
        text="Matching takes linear time, even for patterns of many stars.",
        source="seed 000, Minimal test plan",
        state=Shown(),
    ),
    Requirement(
        id="policy:diff",
        text="`diff` of two results names servers and tools gained and lost.",
        source="seed 002, Phase B: Profiles/Bundles and server tags",
        state=Shown(),
    ),
    Requirement(
        id="policy:explain",
        text="`explain` tells for a tool whether it is allowed, by which layer and why.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:explain:printed",
        text="An explanation is readable when printed and an object when used.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="policy:session:bad-type",
        text="A session parameter of the wrong type is refused with its path.",
        source="seed 000, Session params",
        state=Shown(),
    ),
    Requirement(
        id="policy:session:disabled",
        text="A session with `mcp.enabled` false gets nothing although its task is enabled.",
        source="seed 000, Injection algorithm",
        state=Shown(),
    ),
)
