"""The server record: what is known about one MCP server, and what it may be used for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from bascule.model.sandbox import Sandbox

Transport = Literal["stdio", "streamable_http", "http_sse_legacy"]
Sharing = Literal["shared", "task", "user", "session"]
#: Each within the one before it: fewer and fewer share a connection.
SHARINGS: tuple[Sharing, ...] = ("shared", "task", "user", "session")
ApprovalMode = Literal["never", "policy", "always"]
RuleEffect = Literal["require_approval", "deny", "allow"]
LeakMode = Literal["off", "mask", "block"]
OutputSchemaMode = Literal["warn", "refuse", "off"]
HomeMode = Literal["kept", "temporary"]
AuthType = Literal["bearer", "header", "oauth_client_credentials"]

TRANSPORT_SPELLINGS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "streamable_http": "streamable_http",
    "streamable-http": "streamable_http",
    "http": "streamable_http",
    "http_sse_legacy": "http_sse_legacy",
    "sse": "http_sse_legacy",
}

SERVER_ID_PATTERN = r"^[a-z](?!.*__)[a-z0-9_-]{0,31}$"
NAMESPACE_PATTERN = r"^[A-Za-z](?!.*__)[A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
HEADER_PATTERN = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
TAG_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}$"

ServerId = Annotated[
    str,
    Meta(
        pattern=SERVER_ID_PATTERN,
        description="a lower-case letter, then up to 31 of a-z 0-9 _ -, without '__'",
    ),
]
ToolPattern = Annotated[
    str, Meta(min_length=1, max_length=256, description="a tool name with * and ?")
]
Tag = Annotated[str, Meta(pattern=TAG_PATTERN, description="a word of A-Z a-z 0-9 _ . : / -")]
VariableName = Annotated[
    str, Meta(pattern=VARIABLE_PATTERN, description="the name of an environment variable")
]
HeaderName = Annotated[str, Meta(pattern=HEADER_PATTERN, description="an HTTP header name")]
NonEmpty = Annotated[str, Meta(min_length=1)]
Milliseconds = Annotated[int, Meta(ge=1, le=3_600_000)]


class Stdio(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to start a server as a local process."""

    command: NonEmpty
    args: tuple[str, ...] = ()
    env: Mapping[VariableName, str] = {}
    env_from: tuple[VariableName, ...] = ()
    cwd: NonEmpty | None = None
    home: HomeMode = "kept"

    def environment(self) -> dict[str, str]:
        """Return the values of the server's environment, ``env_from`` spelled out."""
        return {name: f"${{ENV:{name}}}" for name in self.env_from} | dict(self.env)


class Auth(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to authenticate to a remote server. ``ref`` is the token, value or client secret."""

    type: AuthType = "bearer"
    ref: NonEmpty
    header: HeaderName | None = None
    token_url: NonEmpty | None = None
    client_id: NonEmpty | None = None
    scopes: tuple[NonEmpty, ...] = ()


class Tls(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Certificates for one upstream, as file paths on the node."""

    ca: NonEmpty | None = None
    client_certificate: NonEmpty | None = None
    client_key: NonEmpty | None = None


class Http(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to reach a remote server."""

    url: NonEmpty
    headers: Mapping[HeaderName, str] = {}
    auth_ref: NonEmpty | None = None
    auth: Auth | None = None
    tls: Tls | None = None
    insecure: bool = False


class Effects(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The platform's own word on its tools; an unclassed tool writes and is not idempotent."""

    read: tuple[ToolPattern, ...] = ()
    idempotent: tuple[ToolPattern, ...] = ()


class Budgets(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits for one server.

    ``start_timeout_ms`` is the limit of a start in place of ``connect_timeout_ms``; without it,
    launchers that fetch have ``FETCH_TIMEOUT_MS`` (``bascule.model.launcher``).
    """

    connect_timeout_ms: Milliseconds = 15_000
    start_timeout_ms: Milliseconds | None = None
    list_timeout_ms: Milliseconds = 12_000
    tool_timeout_ms: Milliseconds = 60_000
    max_concurrency: Annotated[int, Meta(ge=1, le=10_000)] = 8
    max_tool_output_bytes: Annotated[int, Meta(ge=1, le=104_857_600)] = 65_536
    #: Pictures, sound and binary resources of one result, which a text model never reads.
    max_media_bytes: Annotated[int, Meta(ge=0, le=104_857_600)] = 4_194_304


class ApprovalRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule of an approval policy. Without ``when`` it holds for every call of its tools."""

    tools: tuple[ToolPattern, ...] = ("*",)
    when: NonEmpty | None = None
    effect: RuleEffect = "require_approval"


class ApprovalPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a person must agree before a call leaves."""

    default: ApprovalMode = "never"
    per_tool: Mapping[ToolPattern, ApprovalMode] = {}
    rules: tuple[ApprovalRule, ...] = ()


class RedactKeys(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Write arguments down except the values under these keys."""

    keys: tuple[NonEmpty, ...]


Redaction = Literal["shape", "full"] | RedactKeys


class Hygiene(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is cleaned on the way, and what is written down."""

    leaks: LeakMode = "mask"
    redact: Redaction = "shape"
    #: What follows when a result does not fit the schema that its tool promises.
    output_schema: OutputSchemaMode = "warn"


class ServerRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One MCP server of the registry, in canonical form (DESIGN: the record)."""

    server_id: ServerId
    transport: Transport
    version: Literal[1] = 1
    display_name: Annotated[str, Meta(max_length=200)] = ""
    enabled: bool = True
    tags: tuple[Tag, ...] = ()
    tool_namespace: Annotated[
        str,
        Meta(
            pattern=NAMESPACE_PATTERN,
            max_length=40,
            description="words of A-Z a-z 0-9 _ - joined by dots, without '__'",
        ),
    ] = ""
    allowed_tools: tuple[ToolPattern, ...] = ()
    #: Who shares a connection, and with it a process and its HOME. What does not say so is
    #: ``shared``, as every record was; what is made anew says ``task`` (``wire.new_servers``).
    sharing: Sharing = "shared"
    prewarm: bool = False
    stdio: Stdio | None = None
    http: Http | None = None
    #: What a local server is kept from; without it, from nothing but what every process is.
    sandbox: Sandbox | None = None
    effects: Effects = Effects()
    budgets: Budgets = Budgets()
    approval_policy: ApprovalPolicy = ApprovalPolicy()
    hygiene: Hygiene = Hygiene()

    def __post_init__(self) -> None:
        if not self.tool_namespace:
            force_setattr(self, "tool_namespace", f"mcp.{self.server_id}")

    def connection(self) -> tuple[Transport, Stdio | None, Http | None, Sandbox | None]:
        """Return what a connection depends on; when it changes, the connection restarts."""
        return self.transport, self.stdio, self.http, self.sandbox
