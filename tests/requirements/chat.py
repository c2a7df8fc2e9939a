"""The chat door and its loop."""

from tests.requirements.model import Requirement, Shown

ENTRIES = (
    Requirement(
        id="chat:agent-unaware",
        text="An OpenAI client gets its task's tools executed without knowing of MCP.",
        source="seed 000, Two usage modes",
        state=Shown(),
    ),
    Requirement(
        id="chat:tools:merged",
        text="The upstream request carries the caller's tools and the session's MCP tools.",
        source="seed 000, Building the upstream request",
        state=Shown(),
    ),
    Requirement(
        id="chat:tools:name-clash",
        text="A caller's tool with a name of our table is refused.",
        source="seed 000, Tool naming and collision avoidance",
        state=Shown(),
    ),
    Requirement(
        id="chat:session-params",
        text="A request may narrow servers and tools.",
        source="seed 000, Session params",
        state=Shown(),
    ),
    Requirement(
        id="chat:session-params:flat",
        text="Flat `mcp.*` keys of a request narrow or are refused by name; none goes upstream.",
        source="seed 000, Session params",
        state=Shown(),
    ),
    Requirement(
        id="chat:session-params:too-much",
        text="A request that asks for more than its task allows is refused with the reason.",
        source="seed 000, Session params",
        state=Shown(),
    ),
    Requirement(
        id="chat:task-lists-read-only",
        text="A caller cannot set the task's tool lists.",
        source="seed 000, Session params",
        state=Shown(),
    ),
    Requirement(
        id="chat:default-none",
        text="Without an enabled task no MCP tool is injected.",
        source="seed 000, Selecting which MCP servers are enabled per session",
        state=Shown(),
    ),
    Requirement(
        id="chat:task-defaults",
        text="A chat session takes its task's defaults.",
        source="seed 000, Selecting which MCP servers are enabled per session",
        state=Shown(),
    ),
    Requirement(
        id="chat:tool-choice:none",
        text="`tool_choice` of `none` injects nothing.",
        source="seed 000, Letting users choose MCP tools",
        state=Shown(),
    ),
    Requirement(
        id="chat:tool-choice:auto",
        text="`tool_choice` of `auto` lets the model choose among the filtered tools.",
        source="seed 000, Letting users choose MCP tools",
        state=Shown(),
    ),
    Requirement(
        id="chat:tool-choice:forced",
        text="A forced tool is passed upstream by its model-facing name.",
        source="seed 000, Letting users choose MCP tools",
        state=Shown(),
    ),
    Requirement(
        id="chat:tool-choice:forced-outside",
        text="A forced tool outside the effective set is refused.",
        source="seed 000, Letting users choose MCP tools",
        state=Shown(),
    ),
    Requirement(
        id="chat:loop:role-tool",
        text="Each result is appended as `role=tool` with its `tool_call_id`.",
        source="seed 000, Executing tool calls",
        state=Shown(),
    ),
    Requirement(
        id="chat:loop:repeats",
        text="The loop goes on until the model makes no more tool calls.",
        source="seed 000, Executing tool calls",
        state=Shown(),
    ),
    Requirement(
        id="chat:loop:order",
        text="Results of a turn stand in the order of its calls.",
        source="seed 000, Executing tool calls",
        state=Shown(),
    ),
    Requirement(
        id="chat:loop:max-iterations",
        text="The loop ends at `max_iterations`.",
        source="seed 000, Executing tool calls",
        state=Shown(),
    ),
    Requirement(
        id="chat:loop:max-total-calls",
        text="The loop ends at `max_total_tool_calls`.",
        source="seed 000, Executing tool calls",
        state=Shown(),
    ),
    Requirement(
        id="chat:loop:output-bytes",
        text="The output bytes of a conversation are limited.",
        source="seed 000, Executing tool calls",
        state=Shown(),
    ),
    Requirement(
        id="chat:loop:per-tool-timeout",
        text="A tool that exceeds its time becomes an error result and the loop goes on.",
        source="seed 000, Executing tool calls",
        state=Shown(),
    ),
    Requirement(
        id="chat:loop:bad-arguments",
        text=(
            "Arguments that are not a JSON object go back to the model as `mcp_invalid_arguments`."
        ),
        source="seed 000, Routing and execution",
        state=Shown(),
    ),
    Requirement(
        id="chat:loop:unknown-tool",
        text="A tool name that nobody offered goes back to the model as an error.",
        source="seed 000, Routing and execution",
        state=Shown(),
    ),
    Requirement(
        id="chat:loop:caller-tools",
        text="Calls of the caller's own tools are handed back to the caller.",
        source="seed 000, Routing and execution",
        state=Shown(),
    ),
    Requirement(
        id="chat:loop:server-down",
        text="A call on an unavailable server is appended as a structured error.",
        source="seed 000, Failure handling",
        state=Shown(),
    ),
    Requirement(
        id="chat:loop:model-loops",
        text=(
            "A model that keeps calling tools is stopped by the budgets, and the caller still "
            "gets a response."
        ),
        source="seed 000, Failure handling",
        state=Shown(),
    ),
    Requirement(
        id="chat:disabled-unchanged",
        text="With MCP not enabled, request and answer pass unchanged.",
        source="seed 000, Minimal test plan",
        state=Shown(),
    ),
    Requirement(
        id="chat:no-tools-proceeds",
        text="A chat whose tool set is empty goes on without tools.",
        source="seed 002, Missing environment variables / server unavailable",
        state=Shown(),
    ),
    Requirement(
        id="chat:models",
        text="`GET /v1/models` lists the models of the backends.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="chat:openai-errors",
        text="Errors at the chat door have OpenAI's shape.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="chat:stream",
        text="Streaming and non-streaming requests both work with the official clients.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="chat:backends",
        text="A backend is chosen by model.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="chat:command",
        text="`bascule chat` talks in the terminal with live tool activity.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="chat:disconnect",
        text="A client that disconnects cancels the upstream request and running tools.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="chat:one-catalogue",
        text="The tools of a conversation are not listed again at each iteration.",
        source="seed 000, Spearlet data-plane fetch contract",
        state=Shown(),
    ),
    Requirement(
        id="chat:unknown-paths",
        text="What is not served below /v1 is told in OpenAI's shape, with what is.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
)
