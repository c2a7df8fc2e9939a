"""Hostcalls for WASM guests."""

from tests.requirements.model import Deferred, Requirement, Work

ENTRIES = (
    Requirement(
        id="hostcalls:mcp-open",
        text="`mcp_open(ptr, len)` gives an fd for a registered server.",
        source="seed 000, ABI",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:mcp-list-tools",
        text="`mcp_list_tools` writes the tools of the server as JSON.",
        source="seed 000, ABI",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:mcp-call-tool",
        text="`mcp_call_tool` calls a tool by its native name with JSON arguments.",
        source="seed 000, ABI",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:mcp-close",
        text="`mcp_close` releases the fd.",
        source="seed 000, ABI",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:errno",
        text="Errors are returned as `-errno`.",
        source="seed 000, ABI",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:buffer",
        text="A buffer that is too small is told the length it needs and loses nothing.",
        source="seed 000, ABI",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:list-schema",
        text=(
            "The list has the stable schema of server id and tools with name, description and "
            "inputSchema."
        ),
        source="seed 000, `mcp_list_tools(mcp_fd, out_buf, out_len_ptr) -> rc`",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:call-output",
        text="A call's output is JSON, for success and error alike.",
        source=(
            "seed 000, `mcp_call_tool(mcp_fd, tool_name, args_json, out_buf, out_len_ptr) -> rc`"
        ),
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:bad-arguments",
        text="Arguments that are not UTF-8 JSON give a structured error.",
        source=(
            "seed 000, `mcp_call_tool(mcp_fd, tool_name, args_json, out_buf, out_len_ptr) -> rc`"
        ),
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:close-keeps-pool",
        text="Closing a handle leaves the pooled connection alive.",
        source="seed 000, `mcp_close(mcp_fd) -> rc`",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:open-unknown",
        text="Opening a server that is not registered fails with an errno.",
        source="seed 000, `mcp_open(server_id) -> mcp_fd`",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:open-reuses",
        text="Opening reuses the pool's connection.",
        source="seed 000, `mcp_open(server_id) -> mcp_fd`",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:registry-list",
        text="`mcp_registry_list` gives the servers that the guest may use.",
        source="seed 000, Optional hostcalls",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:registry-get",
        text="`mcp_registry_get` gives one of them, without credentials.",
        source="seed 000, Optional hostcalls",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:fd-kind",
        text="An MCP handle has a kind of its own and is refused where another kind is due.",
        source="seed 000, fd kind",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:cchat",
        text=(
            "`cchat_create`, `write_msg`, `write_fn`, `ctl`, `send`, `recv` and `close` work "
            "for a guest."
        ),
        source="seed 000, Current Spear foundations to reuse",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:cchat:auto-tools",
        text="With automatic tool calls the host runs the loop for the guest.",
        source="seed 000, Current Spear foundations to reuse",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:wasm-tools",
        text="A tool registered with `cchat_write_fn` is called by its function offset.",
        source="seed 000, Executing tool calls",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:wasm-and-mcp",
        text="One conversation may use guest tools and MCP tools.",
        source="seed 000, Executing tool calls",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:set-param",
        text="`cchat_ctl` sets the session parameters.",
        source="seed 000, Session params",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:task-params-read-only",
        text="A guest that writes a `mcp.task_` parameter gets `-EACCES`.",
        source="seed 000, Session params",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:outside-task",
        text="A guest that asks for a server outside its task gets `-EACCES`.",
        source="seed 002, Session override example (narrow to a smaller subset)",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:task-defaults",
        text="`cchat_create` applies the task's defaults, and the guest can only narrow them.",
        source="seed 002, Phase A integration points (aligned with the existing code)",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:run",
        text="`bascule run GUEST.wasm` runs a guest under a task.",
        source="DESIGN.md 5, Surfaces",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:task-required",
        text="Every guest runs under a task.",
        source="DESIGN.md 4, Default deny",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="hostcalls:by-server-id",
        text="A guest reaches servers by registered id only.",
        source="seed 000, Design principles",
        state=Deferred(Work.HOSTCALLS),
    ),
)
