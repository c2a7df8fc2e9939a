"""Tasks and profiles: defaults, ceilings and filters that a task carries."""

from tests.requirements.model import NotPlanned, Requirement, Shown

ENTRIES = (
    Requirement(
        id="task:max-tools",
        text="A task offers at most `mcp.max_tools` tools (128), chosen the same way every time.",
        source="seed 000, Letting users choose MCP tools",
        state=Shown(),
    ),
    Requirement(
        id="task:doubtful",
        text="A write of a task that cannot have what it seems to have is warned about.",
        source="seed 002, Validation",
        state=Shown(),
    ),
    Requirement(
        id="task:config:string-map",
        text="A task is read from a map of strings whose values are JSON in text.",
        source="seed 002, Phase A: encode task-level subset policy in Task.config",
        state=Shown(),
    ),
    Requirement(
        id="task:config:enabled",
        text='`mcp.enabled` is `"true"` or `"false"`.',
        source="seed 002, Phase A: encode task-level subset policy in Task.config",
        state=Shown(),
    ),
    Requirement(
        id="task:config:default-server-ids",
        text="`mcp.default_server_ids` is a JSON array in a string.",
        source="seed 002, Phase A: encode task-level subset policy in Task.config",
        state=Shown(),
    ),
    Requirement(
        id="task:config:allowed-server-ids",
        text="`mcp.allowed_server_ids` is a JSON array in a string.",
        source="seed 002, Phase A: encode task-level subset policy in Task.config",
        state=Shown(),
    ),
    Requirement(
        id="task:config:tool-lists",
        text="`mcp.tool_allowlist` and `mcp.tool_denylist` are JSON arrays in strings.",
        source="seed 002, Phase A: encode task-level subset policy in Task.config",
        state=Shown(),
    ),
    Requirement(
        id="task:config:malformed",
        text=(
            "A value that is not the JSON it should be is refused with the path of its key, "
            "and never read as empty."
        ),
        source="seed 002, Phase A: encode task-level subset policy in Task.config",
        state=Shown(),
    ),
    Requirement(
        id="task:config:foreign-keys",
        text="Keys of the map that do not begin with `mcp.` are left alone.",
        source="seed 002, Phase A: encode task-level subset policy in Task.config",
        state=Shown(),
    ),
    Requirement(
        id="task:typed",
        text="The typed `mcp` object is the canonical form of a task.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="task:forms-agree",
        text="The typed object and the string map give the same task.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="task:absent-empty",
        text="An absent list and an empty list stay different through every form of a task.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="task:server-tags:key",
        text="`mcp.server_tags` names tags, any of which selects a server.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="task:read-only:key",
        text="`mcp.read_only` limits a task to read-class tools.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="task:disabled-by-default",
        text="A task without `mcp.enabled` gives no MCP tools.",
        source="seed 002, Relationship between allow and default",
        state=Shown(),
    ),
    Requirement(
        id="task:allowed-defaults-to-default",
        text="A task without allowed servers is limited to its default servers.",
        source="seed 002, Relationship between allow and default",
        state=Shown(),
    ),
    Requirement(
        id="task:default-outside-allowed",
        text="A default server outside the allowed set is dropped with a warning.",
        source="seed 002, Relationship between allow and default",
        state=Shown(),
    ),
    Requirement(
        id="task:enabled-but-no-default",
        text="An enabled task without default servers gives a warning.",
        source="seed 002, Relationship between allow and default",
        state=Shown(),
    ),
    Requirement(
        id="task:larger-allow",
        text="A session may choose a server that is allowed and not default.",
        source="seed 002, Relationship between allow and default",
        state=Shown(),
    ),
    Requirement(
        id="task:seed-example",
        text=(
            "The task of the seed's appendix gives `gitlab` and `fs`, allows a third server, "
            "and vetoes `delete_*`."
        ),
        source="seed 002, Task.config example",
        state=Shown(),
    ),
    Requirement(
        id="task:profile:servers",
        text="A profile gives a task its servers and tool filters.",
        source="seed 002, Phase B: Profiles/Bundles and server tags",
        state=Shown(),
    ),
    Requirement(
        id="task:profile:environment",
        text="A profile may differ per environment, and the environment chosen decides.",
        source="seed 002, Phase B: Profiles/Bundles and server tags",
        state=Shown(),
    ),
    Requirement(
        id="task:profile:overrides",
        text="`mcp.profile_overrides` narrow a profile.",
        source="seed 002, Phase B: Profiles/Bundles and server tags",
        state=Shown(),
    ),
    Requirement(
        id="task:profile:never-add",
        text=(
            "Explicit keys and overrides of a task intersect with its profile and never add to it."
        ),
        source="seed 002, Phase B: Profiles/Bundles and server tags",
        state=Shown(),
    ),
    Requirement(
        id="task:profile:review",
        text=(
            "A change of a profile shows as a difference in effective access that can be reviewed."
        ),
        source="seed 002, Phase B: Profiles/Bundles and server tags",
        state=Shown(),
    ),
    Requirement(
        id="task:profile:unknown",
        text="A task that names an unknown profile gets no servers, with a reason.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="task:tags:select",
        text="A task that asks by tag gets every eligible server with any of the tags.",
        source="seed 002, Phase B: Profiles/Bundles and server tags",
        state=Shown(),
    ),
    Requirement(
        id="task:tags:narrow",
        text="Tags together with explicit server lists narrow and never add.",
        source="seed 002, Phase B: Profiles/Bundles and server tags",
        state=Shown(),
    ),
    Requirement(
        id="task:unknown-key",
        text="An unknown `mcp.` key is a warning with its path, and an error in strict mode.",
        source="DESIGN.md 4, Policy is one pure function",
        state=Shown(),
    ),
    Requirement(
        id="task:require-one",
        text="A task may demand that at least one server is effective.",
        source="seed 002, Empty subset",
        state=NotPlanned("the seed leaves it to a future flag; a warning is given instead"),
    ),
    Requirement(
        id="task:executable",
        text="A task may carry an executable: the path of a wasm file and its checksum.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
)
