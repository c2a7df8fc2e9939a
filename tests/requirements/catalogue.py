"""What a server offers: tools/list, cached and refreshed."""

from tests.requirements.model import Requirement, Shown

ENTRIES = (
    Requirement(
        id="catalogue:cached",
        text="Tools are listed once and served from the cache within its TTL.",
        source="seed 000, tools/list cache",
        state=Shown(),
    ),
    Requirement(
        id="catalogue:ttl",
        text="The TTL is configurable, and an expired list is fetched again.",
        source="seed 000, tools/list cache",
        state=Shown(),
    ),
    Requirement(
        id="catalogue:failure-ttl",
        text="A failed list is not tried again before a short failure TTL.",
        source="seed 000, tools/list cache",
        state=Shown(),
    ),
    Requirement(
        id="catalogue:key-policy",
        text="A change of policy alone does not list the server again.",
        source="seed 000, tools/list cache",
        state=Shown(),
    ),
    Requirement(
        id="catalogue:single-flight",
        text="Many callers of an expired list cause one `tools/list`.",
        source="seed 000, tools/list cache",
        state=Shown(),
    ),
    Requirement(
        id="catalogue:revision-unchanged",
        text="An unchanged revision rebuilds nothing.",
        source="seed 000, Spearlet data-plane fetch contract",
        state=Shown(),
    ),
    Requirement(
        id="catalogue:invalidate-by-server",
        text="A changed record invalidates the list of its server alone.",
        source="seed 000, Observing SMS updates",
        state=Shown(),
    ),
    Requirement(
        id="catalogue:list-changed",
        text="A `list_changed` notification refreshes the list, and the last change is never lost.",
        source="seed 001, `McpConnection`",
        state=Shown(),
    ),
    Requirement(
        id="catalogue:pages",
        text="All pages of `tools/list` are read.",
        source="seed 003, Tool Discovery",
        state=Shown(),
    ),
    Requirement(
        id="catalogue:on-demand",
        text="Discovery may happen at start or on demand.",
        source="seed 003, Tool Discovery",
        state=Shown(),
    ),
    Requirement(
        id="catalogue:failure-alone",
        text="A failed list gives no tools of that server and a warning with its reason.",
        source="seed 002, Missing environment variables / server unavailable",
        state=Shown(),
    ),
    Requirement(
        id="catalogue:list-timeout",
        text=(
            "A list that exceeds `list_timeout_ms` fails that server alone, with the reason "
            "`list_timeout`."
        ),
        source="seed 002, Missing environment variables / server unavailable",
        state=Shown(),
    ),
    Requirement(
        id="catalogue:not-waited-for",
        text=(
            "A list or call that does not need a server does not wait for it, and one that is "
            "known to hang is waited for by no list."
        ),
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
)
