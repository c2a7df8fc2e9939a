"""The tables of ``bascule.toml`` that say how much, how long and how loudly."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, convert
from msgspec.structs import replace

from bascule.db.dsn import named_files
from bascule.loop.budgets import LoopSettings
from bascule.model.server import NonEmpty
from bascule.model.session import Count, Iterations
from bascule.model.task import ToolOutput
from bascule.model.worker import WorkerCount
from bascule.node.settings import NodeSettings
from bascule.outbound.rules import NodeLists, NodeRules

Level = Literal["debug", "info", "warning", "error", "off"]
LogForm = Literal["text", "json"]

Seconds = Annotated[int, Meta(ge=1, le=86_400)]
Bytes = Annotated[int, Meta(ge=1, le=1_073_741_824)]


class StoreSettings(Struct, frozen=True, kw_only=True):
    """The PostgreSQL that several processes share; without one, all is in the data directory."""

    dsn: NonEmpty | None = None
    listen_dsn: NonEmpty | None = None

    def files(self) -> tuple[str, ...]:
        """Return the files with passwords, keys and certificates that the addresses name."""
        return (*named_files(self.dsn or ""), *named_files(self.listen_dsn or ""))


class LogSettings(Struct, frozen=True, kw_only=True):
    """What is said on standard error, and in which form."""

    level: Level = "info"
    format: LogForm = "text"
    slow_call_ms: Annotated[int, Meta(ge=1)] = 10_000


class ChatSettings(Struct, frozen=True, kw_only=True):
    """The most that one chat request may spend, and the form of results that a model reads."""

    max_iterations: Iterations = 8
    max_total_tool_calls: Count = 32
    max_output_bytes: Bytes = 1024 * 1024
    max_seconds: Seconds = 300
    #: How long a call waits for somebody to approve it before its turn is parked; 0 parks at once.
    approval_wait_seconds: Annotated[int, Meta(ge=0, le=3_600)] = 60
    tool_output: ToolOutput = "auto"

    def loop(self) -> LoopSettings:
        """Return the budgets of a conversation."""
        limits = convert(self, LoopSettings, from_attributes=True)
        return replace(limits, always_json=self.tool_output == "always_json")


ORIGIN_FORM = (
    "an origin as a browser sends it: scheme://host[:port] in small letters, without a path, a "
    "wildcard or the scheme's usual port"
)
#: As browsers write it: no capitals, no path, no port that the scheme has anyway.
Origin = Annotated[
    str,
    Meta(
        pattern=r"^(?!http://[^/]*:80$)(?!https://[^/]*:443$)"
        r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[1-9][0-9]{0,4})?$",
        description=ORIGIN_FORM,
    ),
]


#: The same of a server.
WebOrigin = Annotated[
    str,
    Meta(
        pattern=r"^(?!http://[^/]*:80$)(?!https://[^/]*:443$)"
        r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[1-9][0-9]{0,4})?$",
        description="an address as a browser writes it: https://host[:port] in small letters, "
        "without a path or the scheme's usual port",
    ),
]


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """Whose pages may use the gateway, in a browser."""

    origins: tuple[Origin, ...] = ()


class NodeSection(NodeLists, frozen=True, kw_only=True):
    """The node's rules for records, and its own limits, which no record raises."""

    max_concurrency: Annotated[int, Meta(ge=1, le=100_000)] = 256
    max_processes: Annotated[int, Meta(ge=1, le=10_000)] = 64
    max_processes_per_task: Annotated[int, Meta(ge=1, le=10_000)] = 32
    max_guests: Annotated[int, Meta(ge=0, le=1_000)] = 16
    guest_seconds: Seconds = 600
    guest_memory_mb: Annotated[int, Meta(ge=1, le=4_096)] = 64
    idle_seconds: Seconds = 600
    start_seconds: Seconds = 600
    list_ttl_seconds: Seconds = 300
    list_failure_seconds: Seconds = 2
    #: Whose admin pages may call tools and chat here, in a browser.
    admin_origins: tuple[Origin, ...] = ()
    #: In seconds, for a node whose control plane is elsewhere.
    max_stale: Annotated[int, Meta(ge=1, le=31_536_000)] = 86_400
    #: How many processes share the port, each with connections and limits of its own.
    workers: WorkerCount = 1
    #: For how long one of them may not answer before it is ended and started again.
    worker_seconds: Annotated[int, Meta(ge=1, le=3_600)] = 30

    def rules(self, private: tuple[str, ...]) -> NodeRules:
        """Return the rules for records; ``private`` are files that no list opens."""
        return replace(convert(self, NodeRules, from_attributes=True), private=private)

    def limits(self) -> NodeSettings:
        """Return the limits in the node's own terms."""
        return convert(self, NodeSettings, from_attributes=True)
