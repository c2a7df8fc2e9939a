"""What a local server is kept from: its record's sandbox, raised to the platform's floor.

Task, person and session have no part in it: a process is there before any of them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import fields, replace

from bascule.model.json import is_array
from bascule.model.platform import PlatformRecord
from bascule.model.sandbox import NO_SANDBOX, Sandbox
from bascule.model.server import ServerRecord


def effective_sandbox(record: ServerRecord, platform: PlatformRecord) -> Sandbox | None:
    """Return what a server is to be kept from; None for one that is no process of ours."""
    if record.stdio is None or record.transport != "stdio":
        return None
    return platform.sandbox.raised(record.sandbox or NO_SANDBOX)


def governed(record: ServerRecord, platform: PlatformRecord) -> ServerRecord:
    """Return a record with the sandbox that counts for it."""
    sandbox = effective_sandbox(record, platform)
    if sandbox is None or sandbox == (record.sandbox or NO_SANDBOX):
        return record
    return replace(record, sandbox=sandbox)


def governed_servers(
    servers: Mapping[str, ServerRecord], platform: PlatformRecord
) -> dict[str, ServerRecord]:
    """Return the records as the platform's floor leaves them."""
    return {server_id: governed(record, platform) for server_id, record in servers.items()}


def isolation_notes(record: ServerRecord, platform: PlatformRecord) -> tuple[str, ...]:
    """Say what a server is kept from, and which of it the platform's floor decides."""
    sandbox = effective_sandbox(record, platform)
    if sandbox is None:
        return ()
    own = record.sandbox or NO_SANDBOX
    raised = [
        f"{field.name} {_word(getattr(own, field.name))} became "
        f"{_word(getattr(sandbox, field.name))}"
        for field in fields(sandbox)
        if getattr(own, field.name) != getattr(sandbox, field.name)
    ]
    required = ", required" if sandbox.required else ""
    what = f"sandbox {sandbox.level}{required}; network {sandbox.network}"
    return (what, *(f"sandbox: {one} by the platform's floor" for one in raised))


def _word(value: object) -> str:
    if is_array(value):
        return ", ".join(map(str, value)) or "nothing"
    return "nothing" if value is None else str(value).lower()
