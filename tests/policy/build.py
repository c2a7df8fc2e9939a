"""Short ways to make registries, tasks and catalogues for tests of policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import convert

from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import ServerRecord
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy
from bascule.model.tool import ToolDescriptor, describe
from bascule.model.user import UserRecord
from bascule.policy.access import Access, compile_access
from bascule.policy.compose import Effective


def server(server_id: str, **fields: Any) -> ServerRecord:
    """Make a record that allows everything, but for the fields that are given."""
    plain: dict[str, Any] = {
        "server_id": server_id,
        "transport": "stdio",
        "stdio": {"command": "true"},
        "allowed_tools": ["*"],
    }
    return convert(plain | fields, ServerRecord)


def registry(
    *servers: ServerRecord,
    profiles: Iterable[ProfileRecord] = (),
    platform: PlatformRecord | None = None,
    users: Iterable[UserRecord] = (),
    revision: int = 1,
) -> Snapshot:
    return Snapshot(
        revision=revision,
        servers={record.server_id: record for record in servers},
        profiles={record.name: record for record in profiles},
        platform=platform or PlatformRecord(),
        users={record.user_id: record for record in users},
    )


def platform(**fields: Any) -> PlatformRecord:
    return convert(fields, PlatformRecord)


def profile(name: str, **fields: Any) -> ProfileRecord:
    return convert({"name": name} | fields, ProfileRecord)


def user(user_id: str, **fields: Any) -> UserRecord:
    return convert({"user_id": user_id} | fields, UserRecord)


def task(*default: str, **fields: Any) -> TaskPolicy:
    """Make an enabled task; its default servers may be given by position."""
    own: dict[str, Any] = {"default_server_ids": default} if default else {}
    return convert({"enabled": True} | own | fields, TaskPolicy)


def session(*server_ids: str, **fields: Any) -> SessionRequest:
    """Make a session; without servers it asks for none by name."""
    own: dict[str, Any] = {"server_ids": server_ids} if server_ids else {}
    return convert(own | fields, SessionRequest)


def tool(record: ServerRecord, name: str, **definition: Any) -> ToolDescriptor:
    return describe(record, {"name": name, "inputSchema": {"type": "object"}} | definition)


def access(effective: Effective, *names: str) -> Access:
    """Compile against a catalogue in which every registered server lists these tools."""
    records = effective.registry.servers.values()
    return compile_access(
        effective, {record.server_id: [tool(record, name) for name in names] for record in records}
    )


def reasons(effective: Effective) -> dict[str, tuple[str, str]]:
    """Return the layer and reason of every server that was left out."""
    return {line.server: (line.layer, line.reason) for line in effective.dropped}


def allowed(effective: Effective, server_id: str, *tools: str) -> list[str]:
    return [name for name in tools if effective.decide(server_id, name).allowed]
