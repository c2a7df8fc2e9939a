"""HTTP faces of the registry and the web admin."""

from tests.requirements.model import Deferred, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="admin:defaults",
        text="Answers show the fields that a record leaves at its defaults, unless told not to.",
        source="seed 000, MCP registry",
        state=Shown(),
    ),
    Requirement(
        id="admin:servers:list",
        text=(
            "`GET /admin/api/mcp/servers` lists records with status, last error, tool count "
            "and `updated_at`."
        ),
        source="seed 000, Web Admin: registry management tab",
        state=Shown(),
    ),
    Requirement(
        id="admin:servers:get",
        text="`GET /admin/api/mcp/servers/{id}` gives one record, or 404.",
        source="seed 000, Web Admin: registry management tab",
        state=Shown(),
    ),
    Requirement(
        id="admin:servers:create",
        text="`POST /admin/api/mcp/servers` creates with 201, and answers 409 when the id exists.",
        source="seed 000, Web Admin: registry management tab",
        state=Shown(),
    ),
    Requirement(
        id="admin:servers:replace",
        text="`PUT /admin/api/mcp/servers/{id}` replaces a record.",
        source="seed 000, Web Admin: registry management tab",
        state=Shown(),
    ),
    Requirement(
        id="admin:servers:delete",
        text="`DELETE /admin/api/mcp/servers/{id}` deletes a record.",
        source="seed 000, Web Admin: registry management tab",
        state=Shown(),
    ),
    Requirement(
        id="admin:servers:test",
        text="`POST …/{id}/test` connects, lists tools and answers with a short summary.",
        source="seed 000, Web Admin: registry management tab",
        state=Shown(),
    ),
    Requirement(
        id="admin:servers:preview",
        text=(
            "`GET …/{id}/tools` shows the tools after filtering, with their model-facing "
            "names and decisions."
        ),
        source="seed 000, Web Admin: registry management tab",
        state=Shown(),
    ),
    Requirement(
        id="admin:servers:import",
        text="`POST …/import` validates a file and then upserts.",
        source="seed 000, Web Admin: registry management tab",
        state=Shown(),
    ),
    Requirement(
        id="admin:servers:patch",
        text="`PATCH` merges and drops no field that it did not name.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="admin:web:list",
        text=(
            "The page of servers shows id, transport, status, last error, tool count and "
            "`updated_at`."
        ),
        source="seed 000, Web Admin: registry management tab",
        state=Deferred(Work.WEB_ADMIN),
    ),
    Requirement(
        id="admin:web:form",
        text=(
            "A form creates and edits stdio and HTTP records with allowed tools, budgets and "
            "approval policy."
        ),
        source="seed 000, Web Admin: registry management tab",
        state=Deferred(Work.WEB_ADMIN),
    ),
    Requirement(
        id="admin:web:form-keeps-fields",
        text="Saving a form drops no field that the form does not show.",
        source="seed 000, Web Admin: registry management tab",
        state=Deferred(Work.WEB_ADMIN),
    ),
    Requirement(
        id="admin:web:delete-confirmed",
        text="Deleting asks for confirmation.",
        source="seed 000, Web Admin: registry management tab",
        state=Deferred(Work.WEB_ADMIN),
    ),
    Requirement(
        id="admin:web:test",
        text="A button tests a connection and shows the summary.",
        source="seed 000, Web Admin: registry management tab",
        state=Deferred(Work.WEB_ADMIN),
    ),
    Requirement(
        id="admin:web:preview",
        text="A page previews the filtered tools of a server.",
        source="seed 000, Web Admin: registry management tab",
        state=Deferred(Work.WEB_ADMIN),
    ),
    Requirement(
        id="admin:web:import",
        text="A file of records can be uploaded, validated and imported.",
        source="seed 000, Web Admin: registry management tab",
        state=Deferred(Work.WEB_ADMIN),
    ),
    Requirement(
        id="admin:web:profiles",
        text="A page manages profiles.",
        source="seed 002, Phase B: Profiles/Bundles and server tags",
        state=Deferred(Work.WEB_ADMIN),
    ),
    Requirement(
        id="admin:web:by-server",
        text="A person enables integrations by server and sees read-only and write tools apart.",
        source="seed 000, Letting users choose MCP tools",
        state=Deferred(Work.WEB_ADMIN),
    ),
    Requirement(
        id="admin:web:tasks",
        text="A page manages the servers and tool filters of a task.",
        source="seed 002, Migration plan",
        state=Deferred(Work.WEB_ADMIN),
    ),
    Requirement(
        id="admin:public:list",
        text="`GET /api/v1/mcp/servers` gives store id, revision and servers.",
        source="seed 000, Code layout",
        state=Shown(),
    ),
    Requirement(
        id="admin:public:get",
        text="`GET /api/v1/mcp/servers/{id}` gives one record.",
        source="seed 000, Code layout",
        state=Shown(),
    ),
    Requirement(
        id="admin:public:watch",
        text="`GET /api/v1/mcp/watch` streams changes as server-sent events.",
        source="seed 000, Code layout",
        state=Shown(),
    ),
    Requirement(
        id="admin:errors",
        text=(
            'Errors have one shape, `{"error": {"code", "message", "details"}}`, with an '
            "honest status."
        ),
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="admin:other-kinds",
        text="Tasks, profiles, platform and backends have endpoints of the same pattern.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="admin:tools:list",
        text="`GET /api/v1/tools` gives the tools of a client token's task.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="admin:tools:call",
        text="`POST /api/v1/tools/call` calls a tool through the bridge.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="admin:tools:explain",
        text="`GET /api/v1/tools/explain` explains a decision.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="admin:loopback",
        text="Servers listen on loopback by default.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="admin:config-order",
        text=(
            "A flag stands above the environment, that above `bascule.toml`, that above the "
            "default."
        ),
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="admin:nodes",
        text="The nodes and their state can be listed.",
        source="DESIGN.md 5, Surfaces",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="admin:etag",
        text="Reads carry an ETag, and a write with a stale `If-Match` answers 412.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="admin:node-origin",
        text="A split node serves its own HTTP and allows the admin's origin for tool trials.",
        source="DESIGN.md 5, Surfaces",
        state=Deferred(Work.SCALE_OUT),
    ),
)
