"""The per-agent manager."""

from tests.requirements.model import Deferred, NotPlanned, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="manager:config:defaults",
        text="`[[defaults.mcp]]` servers are inherited by all agents.",
        source="seed 001, Config Shape",
        state=Shown(),
    ),
    Requirement(
        id="manager:config:agents",
        text="`[[agents.mcp]]` servers belong to their agent.",
        source="seed 001, Config Shape",
        state=Shown(),
    ),
    Requirement(
        id="manager:config:seed-example",
        text="The seed's configuration is read with the meaning the seed gives it.",
        source="seed 001, Config Shape",
        state=Shown(),
    ),
    Requirement(
        id="manager:config:append",
        text="An agent's servers are appended to the defaults.",
        source="seed 001, Config integration",
        state=Shown(),
    ),
    Requirement(
        id="manager:config:override",
        text="An agent's server of the same name replaces the default, in place.",
        source="seed 001, Config integration",
        state=Shown(),
    ),
    Requirement(
        id="manager:config:empty",
        text="A configuration without MCP gives no servers and no error.",
        source="seed 001, Config integration",
        state=Shown(),
    ),
    Requirement(
        id="manager:config:enabled",
        text="`enabled` is true by default, and a disabled server is not connected.",
        source="seed 001, `McpServerConfig` struct",
        state=Shown(),
    ),
    Requirement(
        id="manager:config:stdio",
        text="A stdio server takes command, args and env.",
        source="seed 001, `McpServerConfig` struct",
        state=Shown(),
    ),
    Requirement(
        id="manager:config:http",
        text="An HTTP server takes url and headers.",
        source="seed 001, `McpServerConfig` struct",
        state=Shown(),
    ),
    Requirement(
        id="manager:interpolation:connect-time",
        text="`${VAR}` is resolved at connect time in command, args, url, headers and env.",
        source="seed 001, Environment variable interpolation",
        state=Shown(),
    ),
    Requirement(
        id="manager:interpolation:missing",
        text="A missing variable fails that server by name, and is never an empty string.",
        source="seed 001, Environment variable interpolation",
        state=Shown(),
    ),
    Requirement(
        id="manager:connect-all",
        text=(
            "`connect_all` connects every server, and a broken one does not block or fail the "
            "agent."
        ),
        source="seed 001, `McpManager`",
        state=Shown(),
    ),
    Requirement(
        id="manager:disconnect-all",
        text="`disconnect_all` leaves no connection and no process.",
        source="seed 001, `McpManager`",
        state=Shown(),
    ),
    Requirement(
        id="manager:get-tools",
        text="`get_tools` gives adapters of all connected servers.",
        source="seed 001, `McpManager`",
        state=Shown(),
    ),
    Requirement(
        id="manager:reconnect",
        text="`reconnect(name)` closes and opens one server.",
        source="seed 001, `McpManager`",
        state=Shown(),
    ),
    Requirement(
        id="manager:states",
        text="Connecting, connected, failed with its reason and disconnected are told apart.",
        source="seed 001, `McpConnection`",
        state=Shown(),
    ),
    Requirement(
        id="manager:list-changed",
        text="A changed tool list is seen by the next `get_tools`.",
        source="seed 001, `McpConnection`",
        state=Shown(),
    ),
    Requirement(
        id="manager:reload:new",
        text="A reload connects new servers.",
        source="seed 001, Lifecycle rules",
        state=Shown(),
    ),
    Requirement(
        id="manager:reload:removed",
        text="A reload disconnects removed servers.",
        source="seed 001, Lifecycle rules",
        state=Shown(),
    ),
    Requirement(
        id="manager:reload:changed",
        text="A reload reconnects changed servers.",
        source="seed 001, Lifecycle rules",
        state=Shown(),
    ),
    Requirement(
        id="manager:reload:unchanged",
        text="A reload leaves unchanged servers alone.",
        source="seed 001, Lifecycle rules",
        state=Shown(),
    ),
    Requirement(
        id="manager:reload:no-orphans",
        text="A removed server is not brought back by an old retry.",
        source="seed 001, Lifecycle rules",
        state=Shown(),
    ),
    Requirement(
        id="manager:adapter:name",
        text="An adapter's name is `{server_name}_{tool_name}`.",
        source="seed 001, `McpToolAdapter`",
        state=Shown(),
    ),
    Requirement(
        id="manager:adapter:definition",
        text="`definition()` gives name, description and parameters of the tool.",
        source="seed 001, `McpToolAdapter`",
        state=Shown(),
    ),
    Requirement(
        id="manager:adapter:call",
        text="`call()` joins text blocks into one string.",
        source="seed 001, `McpToolAdapter`",
        state=Shown(),
    ),
    Requirement(
        id="manager:adapter:error",
        text="An error of the server is a tool error result and no exception.",
        source="seed 001, `McpToolAdapter`",
        state=Shown(),
    ),
    Requirement(
        id="manager:adapter:arguments",
        text="Arguments are passed as JSON.",
        source="seed 001, `McpToolAdapter`",
        state=Shown(),
    ),
    Requirement(
        id="manager:adapter:collision",
        text="Generic tool names of two servers do not collide.",
        source="seed 001, Tool naming",
        state=Shown(),
    ),
    Requirement(
        id="manager:leaks",
        text="Arguments and results are scanned for leaks.",
        source="seed 001, What we get for free",
        state=Shown(),
    ),
    Requirement(
        id="manager:events",
        text="`ToolStarted` and `ToolCompleted` are published for each call.",
        source="seed 001, What we get for free",
        state=Shown(),
    ),
    Requirement(
        id="manager:truncation",
        text="Output is cut at 50,000 bytes with a marker.",
        source="seed 001, What we get for free",
        state=Shown(),
    ),
    Requirement(
        id="manager:cancellation",
        text="Cancelling a worker cancels its calls.",
        source="seed 001, What we get for free",
        state=Shown(),
    ),
    Requirement(
        id="manager:status-block",
        text="The status block names connected servers.",
        source="seed 001, What we get for free",
        state=Shown(),
    ),
    Requirement(
        id="manager:worker:fixed-set",
        text="A running worker keeps its tool set when a server reconnects.",
        source="seed 001, Changes to worker `run()`",
        state=Shown(),
    ),
    Requirement(
        id="manager:worker:new-set",
        text="A new worker gets the current tools.",
        source="seed 001, Changes to worker `run()`",
        state=Shown(),
    ),
    Requirement(
        id="manager:worker:only-connected",
        text="Tools of a server that is not connected are not registered.",
        source="seed 001, Changes to `create_worker_tool_server()`",
        state=Shown(),
    ),
    Requirement(
        id="manager:per-agent",
        text="Each agent has its own servers and connections.",
        source="seed 001, Decisions",
        state=Shown(),
    ),
    Requirement(
        id="manager:workers-only",
        text="MCP tools are given to workers and not to channels.",
        source="seed 001, Decisions",
        state=NotPlanned(
            "Bascule has no channels; the host decides which part of an agent gets the tools"
        ),
    ),
    Requirement(
        id="manager:api:status",
        text="`GET /api/agents/mcp` lists configured servers with their connection status.",
        source="seed 001, API endpoints",
        state=Shown(),
    ),
    Requirement(
        id="manager:api:reconnect",
        text="`POST /api/agents/mcp/reconnect` reconnects one server by name.",
        source="seed 001, API endpoints",
        state=Shown(),
    ),
    Requirement(
        id="manager:shutdown",
        text="Shutting down an agent ends its processes and HTTP sessions.",
        source="seed 001, Shutdown",
        state=Shown(),
    ),
    Requirement(
        id="manager:server-mode",
        text="Bascule can be reached as an MCP server.",
        source="seed 001, Out of Scope",
        state=Deferred(Work.GATEWAY),
    ),
    Requirement(
        id="manager:resources-prompts",
        text="Resources and prompts are offered to agents.",
        source="seed 001, Out of Scope",
        state=NotPlanned("out of scope of the seed: only tools"),
    ),
    Requirement(
        id="manager:sampling-elicitation",
        text=(
            "A server's sampling and elicitation go to an input handler, and are refused when "
            "there is none."
        ),
        source="seed 001, Out of Scope",
        state=Shown(),
    ),
    Requirement(
        id="manager:per-tool",
        text="Single tools of a server can be allowed and denied.",
        source="seed 001, Out of Scope",
        state=Shown(),
    ),
    Requirement(
        id="manager:dashboard",
        text="Servers can be managed in the web admin.",
        source="seed 001, Out of Scope",
        state=Deferred(Work.WEB_ADMIN),
    ),
    Requirement(
        id="manager:retry",
        text=(
            "A server that failed is retried in the background with growing delays, and never "
            "given up silently."
        ),
        source="DESIGN.md 4, States of a connection",
        state=Shown(),
    ),
    Requirement(
        id="manager:hot-reload",
        text="A reload of the configuration is reconciled without a restart.",
        source="seed 001, Hot-reload",
        state=Shown(),
    ),
    Requirement(
        id="manager:status-block:calls",
        text="The status block shows tool calls that run and the last that ended.",
        source="seed 001, What we get for free",
        state=Shown(),
    ),
)
