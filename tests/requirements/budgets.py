"""Budgets of sessions, servers and nodes."""

from tests.requirements.model import Deferred, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="budgets:turns",
        text="Callers take turns for a server's places, however many calls one of them makes.",
        source="DESIGN.md 4, Budgets",
        state=Shown(),
    ),
    Requirement(
        id="budgets:reserve-commit",
        text="A budget is reserved before a call and committed after it.",
        source="DESIGN.md 4, Budgets",
        state=Shown(),
    ),
    Requirement(
        id="budgets:release",
        text="A reservation that is released burns nothing.",
        source="DESIGN.md 4, Budgets",
        state=Shown(),
    ),
    Requirement(
        id="budgets:denied-burns-nothing",
        text="A denied call burns no budget.",
        source="DESIGN.md 4, Budgets",
        state=Shown(),
    ),
    Requirement(
        id="budgets:platform-ceiling",
        text="A record cannot raise a budget above the platform's ceiling.",
        source="DESIGN.md 4, Budgets",
        state=Shown(),
    ),
    Requirement(
        id="budgets:exceeded",
        text="A call over a budget answers `mcp_budget_exceeded` with `retry_after`.",
        source="DESIGN.md 4, Budgets",
        state=Shown(),
    ),
    Requirement(
        id="budgets:limits-only-lower",
        text=(
            "Limits given with a call may lower the record's timeout and output cap, and "
            "never raise them."
        ),
        source="DESIGN.md 4, Budgets",
        state=Shown(),
    ),
    Requirement(
        id="budgets:server:media",
        text="Media of a result have a cap of their own, `budgets.max_media_bytes`.",
        source="DESIGN.md 4, Budgets",
        state=Shown(),
    ),
    Requirement(
        id="budgets:session:total-calls",
        text="A session's total of tool calls is limited.",
        source="seed 000, Concurrency, budgets, and resource control",
        state=Shown(),
    ),
    Requirement(
        id="budgets:session:output-bytes",
        text="A session's total of output bytes is limited.",
        source="seed 000, Concurrency, budgets, and resource control",
        state=Shown(),
    ),
    Requirement(
        id="budgets:session:iterations",
        text="A session's iterations are limited by `max_iterations`.",
        source="seed 000, Concurrency, budgets, and resource control",
        state=Shown(),
    ),
    Requirement(
        id="budgets:server:concurrency",
        text="At most `max_concurrency` calls run on one server at a time.",
        source="seed 000, Concurrency, budgets, and resource control",
        state=Shown(),
    ),
    Requirement(
        id="budgets:server:timeout",
        text="A call ends at `tool_timeout_ms` with `mcp_timeout`.",
        source="seed 000, Concurrency, budgets, and resource control",
        state=Shown(),
    ),
    Requirement(
        id="budgets:server:output",
        text="A result above `max_tool_output_bytes` is cut.",
        source="seed 000, Components",
        state=Shown(),
    ),
    Requirement(
        id="budgets:node:concurrency",
        text="The node's total of concurrent calls is capped.",
        source="seed 000, Concurrency, budgets, and resource control",
        state=Shown(),
    ),
    Requirement(
        id="budgets:node:subprocesses",
        text="The node's number of server processes is capped.",
        source="seed 000, Concurrency, budgets, and resource control",
        state=Shown(),
    ),
    Requirement(
        id="budgets:same-for-all-tools",
        text="Guest tools and MCP tools are held to the same budgets.",
        source="seed 000, Executing tool calls",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="budgets:task",
        text="A task may lower iterations, calls and output, and choose the form of results.",
        source="seed 000, Concurrency, budgets, and resource control",
        state=Shown(),
    ),
    Requirement(
        id="budgets:request-output",
        text="A request may lower `max_tool_output_bytes`, and not raise it.",
        source="seed 000, Concurrency, budgets, and resource control",
        state=Shown(),
    ),
    Requirement(
        id="budgets:operator",
        text="List TTL, idle and start limits, concurrency and loop budgets are settings.",
        source="seed 000, Concurrency, budgets, and resource control",
        state=Shown(),
    ),
)
