"""The library: bridge, sessions, tool sets and outcomes."""

from tests.requirements.model import Requirement, Shown

ENTRIES = (
    Requirement(
        id="bridge:session:no-servers",
        text="A program's session of no server, or of an unknown one, is warned about.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:open:records",
        text="`Bridge.open` takes records.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:open:directory",
        text="`Bridge.open` takes a directory of records.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:connect",
        text="`Bridge.connect(url, token=…)` serves sessions from a registry.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:blocking",
        text="`Bridge.blocking` works without async.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:server:stdio",
        text="`Server.stdio(...)` builds a record.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:server:http",
        text="`Server.http(...)` builds a record.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:session:refused",
        text="Opening a session that asks for too much raises `SessionRefused`.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:session:without-async-with",
        text="A session works without `async with` too.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:session:parameters",
        text="A session takes servers, task, tool lists and caller.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:tools:openai",
        text="A tool set gives OpenAI tool entries.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:tools:anthropic",
        text="A tool set gives Anthropic tool entries.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:tools:warnings",
        text="A tool set carries warnings and the revision it came from.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:tools:filtered",
        text=(
            "A session's tools are those that record, task and session allow, by their "
            "model-facing names."
        ),
        source="seed 000, Injection algorithm",
        state=Shown(),
    ),
    Requirement(
        id="bridge:tools:none-enabled",
        text="A session with MCP not enabled has no tools.",
        source="seed 000, Injection algorithm",
        state=Shown(),
    ),
    Requirement(
        id="bridge:tools:never-fails",
        text="`session.tools()` does not fail because a server is down.",
        source="seed 002, Missing environment variables / server unavailable",
        state=Shown(),
    ),
    Requirement(
        id="bridge:outcome:fields",
        text=(
            "An outcome gives ok, text, structured, content, error, truncated, request id and "
            "revision."
        ),
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:outcome:unwrap",
        text="`unwrap` gives the value or raises `ToolError` with code and retryable.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:explain",
        text="`session.explain` gives a readable explanation that is an object too.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:content-kept",
        text="Content blocks are kept as such, an unknown kind included.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="bridge:revision",
        text="Every tool set and outcome carries the revision that decided it.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
)
