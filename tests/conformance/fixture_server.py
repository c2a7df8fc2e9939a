"""The server behind Bascule that the conformance suite wants: its tools, on the official SDK.

``python fixture_server.py stdio`` speaks over stdio; ``modern`` and ``legacy`` serve streamable
HTTP in that generation of the protocol alone, and say on standard output which URL they serve.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJg"
    "gg=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="
PAUSE_SECONDS = 0.05
DIALECT = "https://json-schema.org/draft/2020-12/schema"
CONTACT = {
    "$schema": DIALECT,
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
REGION = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
}
ASK_FOR_A_NAME = {
    "method": "elicitation/create",
    "params": {
        "message": "What is your name?",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    },
}
ASK_FOR_A_CAPITAL = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "The capital of France?"}}
        ],
        "maxTokens": 100,
    },
}

Context: TypeAlias = Any
Result: TypeAlias = types.CallToolResult | types.InputRequiredResult


@dataclass(frozen=True)
class Call:
    """A call of a tool: who asked, and what."""

    context: Context
    params: types.CallToolRequestParams

    @property
    def capabilities(self) -> types.ClientCapabilities:
        return self.context.session.client_capabilities or types.ClientCapabilities()


Tool: TypeAlias = Callable[[Call], Awaitable[Result]]


def text(*words: str, failed: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=said) for said in words], is_error=failed
    )


def resource(uri: str, kind: str, said: str) -> types.EmbeddedResource:
    inside = types.TextResourceContents(uri=uri, mime_type=kind, text=said)
    return types.EmbeddedResource(type="resource", resource=inside)


def always(*content: types.ContentBlock) -> Tool:
    """Make a tool that answers with this, whatever it is asked."""

    async def answer(_call: Call) -> Result:
        return types.CallToolResult(content=list(content))

    return answer


async def fail(_call: Call) -> Result:
    return text("This tool intentionally returns an error for testing", failed=True)


async def log_once(call: Call, said: str = "Called.") -> Result:
    await call.context.session.send_log_message(
        "info", said, related_request_id=call.context.request_id
    )
    return text("Logged.")


async def log_thrice(call: Call) -> Result:
    for said in ("Tool execution started", "Tool processing data"):
        await log_once(call, said)
        await anyio.sleep(PAUSE_SECONDS)
    return await log_once(call, "Tool execution completed")


async def report_progress(call: Call) -> Result:
    for progress in (0, 50, 100):
        await call.context.session.report_progress(progress, 100)
        await anyio.sleep(PAUSE_SECONDS)
    return text("Done.")


async def need_sampling(call: Call) -> Result:
    if call.capabilities.sampling is None:
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "this tool needs sampling",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return text("The client can sample.")


async def ask_for_a_name(call: Call) -> Result:
    answers = call.params.input_responses or {}
    if "user_name" in answers:
        return text(f"Hello, {answers['user_name']}!")
    if call.capabilities.elicitation is None:
        return text("the client cannot be asked", failed=True)
    return ask(user_name=ASK_FOR_A_NAME)


async def ask_as_declared(call: Call) -> Result:
    can = call.capabilities
    asks = {"user_name": ASK_FOR_A_NAME} if can.elicitation else {}
    asks |= {"capital": ASK_FOR_A_CAPITAL} if can.sampling else {}
    return ask(**asks) if asks else text("the client cannot be asked", failed=True)


def ask(**requests: object) -> types.InputRequiredResult:
    return types.InputRequiredResult.model_validate({"inputRequests": requests})


class Fixture(Server):
    """The tools of the suite, and one that comes and goes."""

    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        super().__init__(
            "fixture",
            version="1.0.0",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        image = types.ImageContent(type="image", data=PNG, mime_type="image/png")
        self._schemas: dict[str, dict[str, Any]] = {
            "json_schema_2020_12_tool": CONTACT,
            "test_header_parameter": REGION,
        }
        self._tools: dict[str, Tool] = {
            "test_simple_text": always(
                types.TextContent(type="text", text="This is a simple text response for testing.")
            ),
            "test_image_content": always(image),
            "test_audio_content": always(
                types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")
            ),
            "test_embedded_resource": always(
                resource("test://embedded-resource", "text/plain", "This is an embedded resource.")
            ),
            "test_multiple_content_types": always(
                types.TextContent(type="text", text="Multiple content types test:"),
                image,
                resource("test://mixed-content-resource", "application/json", '{"test":"data"}'),
            ),
            "test_tool_with_logging": log_thrice,
            "test_logging_tool": log_once,
            "test_error_handling": fail,
            "test_tool_with_progress": report_progress,
            "test_missing_capability": need_sampling,
            "test_streaming_elicitation": ask_for_a_name,
            "test_input_required_result_elicitation": ask_for_a_name,
            "test_input_required_result_capabilities": ask_as_declared,
            "test_trigger_tool_change": self._change_tools,
            "test_reconnection": always(types.TextContent(type="text", text="Never away.")),
            "test_header_parameter": always(types.TextContent(type="text", text="Taken.")),
            "json_schema_2020_12_tool": always(types.TextContent(type="text", text="Taken.")),
        }

    def create_initialization_options(self, *_: Any, **__: Any) -> InitializationOptions:
        """Say that the list of tools changes, which the SDK does not by itself."""
        return super().create_initialization_options(NotificationOptions(tools_changed=True))

    async def _list(self, _context: Context, _params: object) -> types.ListToolsResult:
        tools = [
            types.Tool(
                name=name,
                description=f"What the suite wants of {name}.",
                input_schema=self._schemas.get(name, {"type": "object"}),
            )
            for name in self._tools
        ]
        return types.ListToolsResult(tools=tools, ttl_ms=0, cache_scope="private")

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> Result:
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"no such tool: {params.name}")
        return await tool(Call(context, params))

    async def _set_level(self, _context: Context, _params: object) -> types.EmptyResult:
        return types.EmptyResult()

    async def _change_tools(self, call: Call) -> Result:
        """Add a tool, or take it away again, and announce it."""
        if self._tools.pop("test_passing_tool", None) is None:
            self._tools["test_passing_tool"] = fail
        if call.context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            await self._bus.publish(ToolsListChanged())
        else:
            await call.context.session.send_tool_list_changed()
        return text("Changed.")


class OneGeneration:
    """Lets the requests of one generation through, and refuses those of the other."""

    def __init__(self, app: ASGIApp, *, modern: bool) -> None:
        self._app = app
        self._modern = modern

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
            modern = bool(version) and version not in HANDSHAKE_PROTOCOL_VERSIONS
            if modern != self._modern:
                error = {"code": -32600, "message": "not spoken here"}
                body = {"jsonrpc": "2.0", "id": None, "error": error}
                return await JSONResponse(body, 400)(scope, receive, send)
        return await self._app(scope, receive, send)


async def serve_stdio() -> None:
    fixture = Fixture()
    async with stdio_server() as (reading, writing):
        await fixture.run(reading, writing, fixture.create_initialization_options())


async def serve_http(*, modern: bool) -> None:
    app = OneGeneration(Fixture().streamable_http_app(), modern=modern)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp\n")
        sys.stdout.flush()
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        asyncio.run(serve_stdio())
    else:
        asyncio.run(serve_http(modern=sys.argv[1] == "modern"))
