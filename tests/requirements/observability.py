"""Metrics and health."""

from tests.requirements.model import Requirement, Shown

ENTRIES = (
    Requirement(
        id="observability:connect-total",
        text="`mcp_server_connect_total` counts connects by server.",
        source="seed 000, Observability and audit",
        state=Shown(),
    ),
    Requirement(
        id="observability:call-total",
        text="`mcp_tool_call_total` counts calls by server and tool.",
        source="seed 000, Observability and audit",
        state=Shown(),
    ),
    Requirement(
        id="observability:error-total",
        text="`mcp_tool_call_error_total` counts failures by server, tool and code.",
        source="seed 000, Observability and audit",
        state=Shown(),
    ),
    Requirement(
        id="observability:latency",
        text="`mcp_tool_call_latency_ms` is a histogram by server and tool.",
        source="seed 000, Observability and audit",
        state=Shown(),
    ),
    Requirement(
        id="observability:output-bytes",
        text="`mcp_tool_call_output_bytes` is a histogram by server and tool.",
        source="seed 000, Observability and audit",
        state=Shown(),
    ),
    Requirement(
        id="observability:injection-total",
        text=(
            "`mcp_injection_total` counts lists offered by server and status (success, "
            "failed, denied)."
        ),
        source="seed 002, Observability",
        state=Shown(),
    ),
    Requirement(
        id="observability:list-latency",
        text="`mcp_list_tools_latency_ms` is a histogram by server.",
        source="seed 002, Observability",
        state=Shown(),
    ),
    Requirement(
        id="observability:effective-servers",
        text="`mcp_effective_servers` is a log field of each opened session.",
        source="seed 002, Observability",
        state=Shown(),
    ),
    Requirement(
        id="observability:denied-reason",
        text="`mcp_denied_reason` counts denials by server and reason.",
        source="seed 002, Observability",
        state=Shown(),
    ),
    Requirement(
        id="observability:timeout-rate",
        text="The rate of timeouts per tool can be read from the metrics.",
        source="seed 000, Observability",
        state=Shown(),
    ),
    Requirement(
        id="observability:session-totals",
        text="Tool calls, iterations and budget hits per chat session are measured.",
        source="seed 000, Observability",
        state=Shown(),
    ),
    Requirement(
        id="observability:metrics-endpoint",
        text="`/metrics` serves the metrics.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="observability:healthz",
        text="`/healthz` says `ok` or `degraded`, with revision and servers.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="observability:readiness-uncoupled",
        text="A server that is down shows in health and never makes the process unready.",
        source="seed 003, Open Questions",
        state=Shown(),
    ),
    Requirement(
        id="observability:readyz:store",
        text="`/readyz` says 503 with the reason while the store refuses writes.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="observability:denied-calls",
        text=(
            "Denied calls, and those of servers that are not there, count as calls and as "
            "errors with their code."
        ),
        source="seed 000, Observability and audit",
        state=Shown(),
    ),
    Requirement(
        id="observability:not-asked",
        text="Servers that nobody asked for are not counted as denied.",
        source="seed 002, Observability",
        state=Shown(),
    ),
    Requirement(
        id="observability:session-refused",
        text="`mcp_session_refused_total` counts refused sessions by reason, at every door.",
        source="seed 002, Observability",
        state=Shown(),
    ),
    Requirement(
        id="observability:log",
        text=(
            "A process says start, stop, refusals, connection failures and slow calls on "
            "standard error."
        ),
        source="seed 001, McpManager",
        state=Shown(),
    ),
    Requirement(
        id="observability:log-forms",
        text="The log has a level and two forms, for people and for machines.",
        source="seed 002, Observability",
        state=Shown(),
    ),
    Requirement(
        id="observability:log-masked",
        text="No line of the log shows a secret.",
        source="seed 000, Observability",
        state=Shown(),
    ),
    Requirement(
        id="observability:server-status",
        text="A server's status has reconnects, average latency, and Connected, Degraded or Down.",
        source="seed 000, Observability",
        state=Shown(),
    ),
)
