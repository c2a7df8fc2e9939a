"""The server record: its fields, its validator and its forms."""

from tests.requirements.model import Deferred, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="record:version",
        text=(
            "A record of version 1 is accepted and any other version is refused with the path "
            "`version`."
        ),
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:version:absent",
        text="A record without a version is read as version 1 and written with it.",
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:server-id:charset",
        text="A `server_id` is accepted only if it matches `^[a-z][a-z0-9_-]{0,31}$`.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:server-id:no-double-underscore",
        text="A `server_id` that contains `__` is refused, because names are built with it.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:server-id:unique",
        text="Two records with the same `server_id` cannot stand in one registry snapshot.",
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:server-id:required",
        text="A record without a `server_id` is refused, with the path.",
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:display-name",
        text="`display_name` is free text and is carried unchanged.",
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:transport:stdio",
        text='`transport = "stdio"` needs a `[stdio]` table with a command.',
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:transport:streamable-http",
        text='`transport = "streamable_http"` needs an `[http]` table with a URL.',
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:transport:legacy-sse",
        text='`transport = "http_sse_legacy"` is accepted with an `[http]` table.',
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:transport:mismatch",
        text=(
            "A record whose tables do not fit its transport is refused with the path of the table."
        ),
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:transport:spellings",
        text=(
            "`http`, `streamable-http` and `sse` are accepted on input and written in the "
            "canonical spelling."
        ),
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:stdio:command-args-env-cwd",
        text="`stdio.command`, `args`, `env` and `cwd` are kept in order and unchanged.",
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:http:url-headers-auth-ref",
        text="`http.url`, `headers` and `auth_ref` are kept unchanged.",
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:http:tls",
        text="`[http]` takes a CA file and a client certificate.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:http:insecure",
        text="`[http]` takes `insecure`, false when absent.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:http:auth-types",
        text=(
            "`[http.auth]` is of type `bearer`, `header` or `oauth_client_credentials`, each "
            "with its own required fields."
        ),
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:http:auth-ref-means-bearer",
        text="`auth_ref` alone means bearer authentication.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:tool-namespace:default",
        text="An absent `tool_namespace` means `mcp.<server_id>`.",
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:tool-namespace:unique",
        text="Two records with the same `tool_namespace` in one registry are refused.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:allowed-tools:default-deny",
        text="A record without `allowed_tools`, or with an empty list, allows no tool.",
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:approval-policy:values",
        text="`approval_policy` takes `never`, `always` or `policy` and nothing else.",
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:approval-policy:per-tool",
        text="`per_tool` maps patterns to verdicts.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:approval-policy:rules",
        text="`[[approval_policy.rules]]` are kept in order with tools, condition and effect.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:approval-policy:bad-condition",
        text=(
            "A rule whose condition does not parse is refused when the record is read, with "
            "the path of the rule."
        ),
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:budgets:fields",
        text=(
            "`tool_timeout_ms`, `max_concurrency` and `max_tool_output_bytes` are read from "
            "`[budgets]`."
        ),
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="record:budgets:defaults",
        text=(
            "Absent budgets mean a connect timeout of 15,000 ms, list timeout of 12,000 ms "
            "and tool timeout of 8,000 ms."
        ),
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:budgets:zero",
        text="A budget of zero or below is refused and never read as a very small limit.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:enabled",
        text="A record with `enabled = false` is kept and contributes no server.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:tags",
        text="A record carries tags, and a record without them has none.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:sharing",
        text="`sharing` is `shared` or `session`, and `shared` when absent.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:prewarm",
        text="`prewarm` is a boolean, false when absent.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:effects",
        text="`[effects]` names read and idempotent tools by pattern.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:effects:default",
        text="A tool that no effect pattern matches is write-class and not idempotent.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:hygiene:leaks",
        text="`hygiene.leaks` is `off`, `mask` or `block`, and `mask` when absent.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:hygiene:redact",
        text="`hygiene.redact` is `shape`, `full` or a list of keys, and `shape` when absent.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:formats:json-toml-dict",
        text="The same record in dict, JSON and TOML form gives the same value.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:formats:round-trip",
        text="Encoding a record and decoding it gives the same record, in every format.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:formats:protobuf",
        text=(
            "The protobuf form carries every field of the record, and optional lists as "
            "wrapper messages."
        ),
        source="DESIGN.md 4, The record",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="record:patterns:bad",
        text="A pattern that is empty or not text is refused with its path.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:unknown-field:refused",
        text="An unknown field refuses a record, with its path and the nearest name.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="record:unknown-field:newer",
        text="A node reads a newer registry's record without the fields it does not know.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:unknown-field:kept",
        text="Unknown fields that a store holds are kept and may be sent back unchanged.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:unknown-field:code",
        text="An unknown keyword of a server in code is a TypeError that names the nearest.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:lists:code",
        text="A text where code should give a list is a TypeError, never a list of its letters.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:patterns:model-name",
        text="A pattern that is spelled like a model's name of a tool is refused.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="record:seed-example:fs",
        text="The filesystem record of the seed is read, with the meaning the seed gives it.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="record:validate:path",
        text=(
            "Every message of the validator begins with the path of the field, such as "
            "`budgets.max_concurrency`."
        ),
        source="seed 000, SMS: registry store and service",
        state=Shown(),
    ),
    Requirement(
        id="record:validate:all-problems",
        text="The validator reports all problems of a record at once.",
        source="seed 000, SMS: registry store and service",
        state=Shown(),
    ),
    Requirement(
        id="record:descriptor:fields",
        text=(
            "A tool descriptor carries native name, description, input schema, server and "
            "model-facing name."
        ),
        source="seed 000, Client & Tool",
        state=Shown(),
    ),
    Requirement(
        id="record:descriptor:annotations",
        text="A tool's annotations are kept as untrusted data and decide nothing.",
        source="seed 000, Client & Tool",
        state=Shown(),
    ),
    Requirement(
        id="record:descriptor:digest",
        text=(
            "The digest of a tool definition is stable under key order and changes with every leaf."
        ),
        source="DESIGN.md 4, Approval",
        state=Shown(),
    ),
    Requirement(
        id="record:call-request:fields",
        text=(
            "A call request carries server, tool, arguments as a JSON object, timeout and "
            "output limit."
        ),
        source="seed 000, Client & Tool",
        state=Shown(),
    ),
)
