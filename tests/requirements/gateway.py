"""What is left for a gateway, and what the seeds leave out."""

from tests.requirements.model import Deferred, NotPlanned, Requirement, Work

ENTRIES = (
    Requirement(
        id="gateway:mode",
        text="Third-party MCP clients reach governed tools through Bascule.",
        source="seed 000, Suggested rollout plan",
        state=Deferred(Work.GATEWAY),
    ),
    Requirement(
        id="gateway:resources-prompts",
        text="MCP resources and prompts of servers are bridged.",
        source="seed 000, Suggested rollout plan",
        state=NotPlanned('every seed takes tools only, and the first leaves it open "if needed"'),
    ),
    Requirement(
        id="gateway:same-policy",
        text="A gateway client gets the same decisions as at every other door.",
        source="DESIGN.md 1, One bridge, many doors",
        state=Deferred(Work.GATEWAY),
    ),
    Requirement(
        id="gateway:responses-api",
        text="A Responses API door serves the same tools.",
        source="DESIGN.md 1, One bridge, many doors",
        state=Deferred(Work.GATEWAY),
    ),
    Requirement(
        id="gateway:every-capability",
        text="Every MCP capability category is implemented.",
        source="seed 000, Non-goals",
        state=NotPlanned("a non-goal of the seed: tools come first"),
    ),
)
