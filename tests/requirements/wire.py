"""JSON-RPC frames and strict JSON."""

from tests.requirements.model import Requirement, Shown

ENTRIES = (
    Requirement(
        id="wire:generation:offered",
        text="A server of an unknown generation is reported with the versions it offered.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="wire:jsonrpc",
        text="Messages are framed as JSON-RPC 2.0 on every transport.",
        source="seed 003, Transport Implementations",
        state=Shown(),
    ),
    Requirement(
        id="wire:duplicate-keys",
        text="JSON with a duplicate key is refused.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Shown(),
    ),
    Requirement(
        id="wire:nan",
        text="JSON with NaN or Infinity is refused.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Shown(),
    ),
    Requirement(
        id="wire:depth",
        text="JSON that is nested too deep is refused without exhausting the stack.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Shown(),
    ),
    Requirement(
        id="wire:invalid-utf8",
        text="A frame of invalid UTF-8 is refused.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Shown(),
    ),
    Requirement(
        id="wire:generations",
        text="Servers of both protocol generations are spoken to, found out by probing.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Shown(),
    ),
    Requirement(
        id="wire:generation:quick-fallback",
        text="A server that exits or is silent on the probe still connects, quickly.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Shown(),
    ),
    Requirement(
        id="wire:frame-cap",
        text="A frame above the cap is refused without being held in memory.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="wire:page-cap",
        text="`tools/list` stops at the cap of pages and keeps them; a repeated cursor ends it.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="wire:tool-cap",
        text="Tools per server are capped, and what is dropped is reported.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="wire:description-cap",
        text="A description above the cap is cut.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="wire:decompressed-cap",
        text="A compressed body is capped by its decompressed size.",
        source="DESIGN.md 4, Everything ends",
        state=Shown(),
    ),
    Requirement(
        id="wire:arguments-object",
        text="Arguments that are not a JSON object give a structured error.",
        source="seed 000, Routing and execution",
        state=Shown(),
    ),
    Requirement(
        id="wire:server-requests-refused",
        text=(
            "A server's request that was not offered, such as sampling or elicitation, is refused."
        ),
        source="seed 001, Out of Scope",
        state=Shown(),
    ),
)
