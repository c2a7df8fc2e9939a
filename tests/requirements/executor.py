"""The executor for agent loops."""

from tests.requirements.model import Deferred, NotPlanned, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="executor:protocol",
        text="`McpExecutor` is a `ToolExecutor` with kind, `can_execute` and `execute`.",
        source="seed 003, Purpose",
        state=Shown(),
    ),
    Requirement(
        id="executor:execute",
        text="`execute` runs a call through the bridge and gives a result under its call id.",
        source="seed 003, Purpose",
        state=Shown(),
    ),
    Requirement(
        id="executor:error-result",
        text="A failed call is a result marked as error and no exception.",
        source="seed 003, Purpose",
        state=Shown(),
    ),
    Requirement(
        id="executor:discover",
        text="`discover_tools()` gives definitions of kind MCP.",
        source="seed 003, Tool Discovery",
        state=Shown(),
    ),
    Requirement(
        id="executor:discover:cached",
        text="Discovered tools are cached.",
        source="seed 003, Tool Discovery",
        state=Shown(),
    ),
    Requirement(
        id="executor:discover:retried",
        text="A discovery that failed once is tried again.",
        source="seed 003, Tool Discovery",
        state=Shown(),
    ),
    Requirement(
        id="executor:merge-on-reference",
        text="A server's tools are merged only when the request references it.",
        source="seed 003, Tool Discovery",
        state=Shown(),
    ),
    Requirement(
        id="executor:config",
        text="The configuration takes name, transport, command, args, URL, headers and env.",
        source="seed 003, Configuration",
        state=Shown(),
    ),
    Requirement(
        id="executor:config:transports",
        text="`stdio`, `sse` and `streamable-http` are accepted.",
        source="seed 003, Configuration",
        state=Shown(),
    ),
    Requirement(
        id="executor:config:tls",
        text="The configuration takes certificates for HTTP servers, for mutual TLS too.",
        source="seed 003, Security Considerations",
        state=Shown(),
    ),
    Requirement(
        id="executor:config:static",
        text="The servers come from a static list.",
        source="seed 003, Configuration",
        state=Shown(),
    ),
    Requirement(
        id="executor:many-servers",
        text="One executor serves many servers by name.",
        source="seed 003, MCP Client Architecture",
        state=Shown(),
    ),
    Requirement(
        id="executor:client:close",
        text="Closing the executor closes every connection.",
        source="seed 003, MCP Client Architecture",
        state=Shown(),
    ),
    Requirement(
        id="executor:foreign-tool",
        text="A caller's own tools are reported as not executable.",
        source="seed 003, MCP Client Architecture",
        state=Shown(),
    ),
    Requirement(
        id="executor:sanitised",
        text="Results are cleaned by the bridge before the model sees them.",
        source="seed 003, Security Considerations",
        state=Shown(),
    ),
    Requirement(
        id="executor:lazy",
        text="Discovery is lazy, with optional pre-warming.",
        source="seed 003, Open Questions",
        state=Shown(),
    ),
    Requirement(
        id="executor:disconnection",
        text="A disconnection in the middle of a turn is an error result, and the turn goes on.",
        source="seed 003, Open Questions",
        state=Shown(),
    ),
    Requirement(
        id="executor:health",
        text="Health of servers is shown and never coupled to readiness.",
        source="seed 003, Open Questions",
        state=Shown(),
    ),
    Requirement(
        id="executor:auth",
        text="API keys and OAuth client credentials authenticate to servers.",
        source="seed 003, Open Questions",
        state=Shown(),
    ),
    Requirement(
        id="executor:reconnection",
        text="A lost server is reconnected for the next call.",
        source="seed 003, In Scope",
        state=Shown(),
    ),
    Requirement(
        id="executor:dynamic-discovery",
        text="Servers are discovered dynamically.",
        source="seed 003, Out of Scope",
        state=NotPlanned("the seed calls it future work; the registry is how servers come and go"),
    ),
    Requirement(
        id="executor:resources-prompts",
        text="Resources and prompts are served.",
        source="seed 003, Out of Scope",
        state=NotPlanned("the seed takes tools only"),
    ),
    Requirement(
        id="executor:sandbox",
        text="Servers run in a sandbox.",
        source="seed 003, Out of Scope",
        state=NotPlanned("the seed leaves it to another spec"),
    ),
    Requirement(
        id="executor:server-mode",
        text="The tools of a task are served to MCP clients.",
        source="seed 003, Out of Scope",
        state=Deferred(Work.GATEWAY),
    ),
)
