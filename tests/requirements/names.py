"""Model-facing tool names and the table behind them."""

from tests.requirements.model import Requirement, Shown

ENTRIES = (
    Requirement(
        id="names:form",
        text="The model-facing name is `mcp__<server>__<tool>`.",
        source="DESIGN.md 4, Names",
        state=Shown(),
    ),
    Requirement(
        id="names:prefix-from-namespace",
        text="The prefix comes from `tool_namespace`: `mcp.fs` gives `mcp__fs__`.",
        source="DESIGN.md 4, Names",
        state=Shown(),
    ),
    Requirement(
        id="names:legal",
        text="A name has at most 64 characters of `[A-Za-z0-9_-]`.",
        source="DESIGN.md 4, Names",
        state=Shown(),
    ),
    Requirement(
        id="names:too-long",
        text="A name that would be too long is cut and ends in a hash.",
        source="DESIGN.md 4, Names",
        state=Shown(),
    ),
    Requirement(
        id="names:illegal-characters",
        text="A tool name with illegal characters is cleaned and ends in a hash.",
        source="DESIGN.md 4, Names",
        state=Shown(),
    ),
    Requirement(
        id="names:double-underscore",
        text="A tool name that contains `__` ends in a hash, so that no two pairs share a name.",
        source="DESIGN.md 4, Names",
        state=Shown(),
    ),
    Requirement(
        id="names:pure",
        text="A name depends on server and tool alone, never on what else exists.",
        source="DESIGN.md 4, Names",
        state=Shown(),
    ),
    Requirement(
        id="names:input:dotted",
        text="`mcp.<server>.<tool>` is accepted on input.",
        source="DESIGN.md 4, Names",
        state=Shown(),
    ),
    Requirement(
        id="names:input:slash",
        text="`<server>/<tool>` is accepted on input.",
        source="DESIGN.md 4, Names",
        state=Shown(),
    ),
    Requirement(
        id="names:order",
        text="Lists of tools come in a deterministic order.",
        source="DESIGN.md 4, Names",
        state=Shown(),
    ),
    Requirement(
        id="names:python-doors",
        text="The Python doors show `<prefix>_<tool>` with the same table behind it.",
        source="DESIGN.md 4, Names",
        state=Shown(),
    ),
    Requirement(
        id="names:collision-free",
        text="Tools of the same name on two servers get different names.",
        source="seed 000, Tool naming and collision avoidance",
        state=Shown(),
    ),
    Requirement(
        id="names:route-back",
        text="Every name leads back to exactly its server and tool.",
        source="seed 000, Tool naming and collision avoidance",
        state=Shown(),
    ),
    Requirement(
        id="names:spellings",
        text="Every door understands `mcp__s__t`, `mcp.s.t`, `s/t`, `s.t` and a unique bare name.",
        source="seed 000, Tool naming and collision avoidance",
        state=Shown(),
    ),
    Requirement(
        id="names:ambiguous",
        text="A name that could mean two tools is refused and names those the caller may use.",
        source="seed 000, Tool naming and collision avoidance",
        state=Shown(),
    ),
    Requirement(
        id="names:unknown:told",
        text="A name that does not exist is `unknown_tool`, with what was probably meant.",
        source="seed 000, Tool naming and collision avoidance",
        state=Shown(),
    ),
    Requirement(
        id="names:unknown",
        text="A name that the table does not hold leads nowhere, however well it parses.",
        source="seed 000, Minimal test plan",
        state=Shown(),
    ),
    Requirement(
        id="names:dots-in-tool",
        text="A tool name with dots is found by its dotted spelling.",
        source="seed 000, Minimal test plan",
        state=Shown(),
    ),
)
