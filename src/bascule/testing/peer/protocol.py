"""What a good MCP server answers, in both eras: handshake, probe, lists, subscriptions."""

from __future__ import annotations

from bascule.testing.peer.frames import META, Call, Server, tag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bascule.testing.peer.frames import Handler, Json

    Refusal = tuple[int, str, Json | None]

MODERN = "2026-07-28"
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INVALID_REQUEST = -32600
UNSUPPORTED_VERSION = -32022


def refuse(server: Server, call: Call) -> Refusal | None:
    """Why this request is out of place in the eras this server speaks."""
    era = server.script.get("era", "dual")
    if call.modern and era != "legacy":
        return refuse_modern(call)
    if era == "modern":
        if call.method == "initialize":
            requested = call.params.get("protocolVersion")
            return UNSUPPORTED_VERSION, "no handshake here", versions(requested)
        return INVALID_PARAMS, "params._meta lacks the protocol version", None
    if call.method == "server/discover":
        return METHOD_NOT_FOUND, "Method not found", None
    if call.method in ("initialize", "ping") or server.initialised:
        return None
    return INVALID_REQUEST, "not initialised", None


def refuse_modern(call: Call) -> Refusal | None:
    """The envelope every modern request must carry."""
    version = call.meta[META + "protocolVersion"]
    if version != MODERN or call.method == "initialize":
        return UNSUPPORTED_VERSION, "unsupported protocol version", versions(version)
    if not isinstance(call.meta.get(META + "clientCapabilities"), dict):
        return INVALID_PARAMS, "params._meta lacks clientCapabilities", None
    return None


def versions(requested: object) -> Json:
    """The data of an unsupported version."""
    return {"supported": [MODERN], "requested": requested}


def initialize(server: Server, call: Call) -> None:
    """The handshake of the legacy eras."""
    server.initialised = True
    result: Json = {
        "protocolVersion": server.script.get("version", "2025-11-25"),
        "capabilities": server.capabilities(),
        "serverInfo": server.info(),
    }
    if "instructions" in server.script:
        result["instructions"] = server.script["instructions"]
    server.complete(call, result)


def discover(server: Server, call: Call) -> None:
    """The probe of the modern era."""
    result: Json = {
        "supportedVersions": [MODERN],
        "capabilities": server.capabilities(),
        "instructions": server.script.get("instructions", ""),
        **server.hints(),
    }
    server.complete(call, result)


def list_tools(server: Server, call: Call) -> None:
    """One page of tools, or a page of a list that never ends."""
    cursor = call.params.get("cursor")
    size = server.script.get("page_size") or max(len(server.tools), 1)
    start = int(cursor or 0)
    page = server.tools[start : start + size]
    following = next_cursor(server.script.get("pagination"), start, size, len(server.tools))
    result: Json = (
        {"tools": page} if following is None else {"tools": page, "nextCursor": following}
    )
    if call.modern:
        result.update(server.hints())
    server.complete(call, {**result, **server.script.get("list_extra", {})})


def next_cursor(pagination: str | None, start: int, size: int, total: int) -> str | None:
    """Where the list goes on: for ever, in a circle, or until it is over."""
    if pagination == "endless":
        return str(start + size)
    if pagination == "cycle":
        return str((start + size) % (3 * size))
    return str(start + size) if start + size < total else None


def call_tool(server: Server, call: Call) -> None:
    """Behave as the script says for this tool."""
    name = call.params.get("name")
    behaviours = server.script.get("behaviours", {})
    if name not in behaviours and name not in map(name_of, server.tools):
        server.fail(call, INVALID_PARAMS, f"Unknown tool: {name}")
        return
    server.perform(call, behaviours.get(name, "echo"))


def name_of(tool: Json) -> object:
    """The name of a listed tool; scripts may list things that are not tools at all."""
    try:
        return tool["name"]
    except (KeyError, TypeError):
        return None


def listen(server: Server, call: Call) -> None:
    """Acknowledge a subscription and keep it."""
    wanted = call.params.get("notifications", {}).get("toolsListChanged") is True
    if wanted:
        server.listeners.append(call)
    params = {"_meta": tag(call.id), "notifications": {"toolsListChanged": wanted}}
    server.notify(call, "notifications/subscriptions/acknowledged", params)


def set_level(server: Server, call: Call) -> None:
    """How much a legacy client wants to hear, where it is offered to say so."""
    if call.modern or "logging" not in server.capabilities():
        unknown_method(server, call)
    else:
        server.log_level = call.params["level"]
        server.complete(call, {})


def ping(server: Server, call: Call) -> None:
    """Still here; the modern era has no ping."""
    if call.modern:
        unknown_method(server, call)
    else:
        server.complete(call, {})


def unknown_method(server: Server, call: Call) -> None:
    """Not something this server knows."""
    server.fail(call, METHOD_NOT_FOUND, "Method not found")


HANDLERS: dict[str, Handler] = {
    "initialize": initialize,
    "server/discover": discover,
    "ping": ping,
    "logging/setLevel": set_level,
    "tools/list": list_tools,
    "tools/call": call_tool,
    "subscriptions/listen": listen,
}


def guarded(handler: Handler) -> Handler:
    """The handler behind the rules of the era."""

    def handle(server: Server, call: Call) -> None:
        refusal = refuse(server, call)
        if refusal is None:
            handler(server, call)
        else:
            server.fail(call, *refusal)

    return handle


METHODS = {name: guarded(handler) for name, handler in HANDLERS.items()}
METHODS[""] = guarded(unknown_method)
