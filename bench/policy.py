"""Policy: composing over 10,000 tools, and deciding one call among them, under three layers."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from statistics import median

from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import Effects, ServerRecord, Stdio
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy
from bascule.model.tool import ToolDescriptor, describe
from bascule.policy.access import Access, compile_access
from bascule.policy.compose import compose
from bench.table import Row, at_most

NAME = "policy"
SERVERS = 100
TOOLS_PER_SERVER = 100
RUNS = 9
DECISIONS = 200_000


def run() -> list[Row]:
    """Measure the median of several runs; every layer has filters that really apply."""
    registry, catalogue = _world()
    access = _composed(registry, catalogue)
    names = list(access.decisions)
    assert len(names) == SERVERS * TOOLS_PER_SERVER
    assert 0 < len(access.grants) < len(names)
    composing = _median(lambda: _composed(registry, catalogue), 1)
    known = names[len(names) // 2]
    deciding = _median(lambda: access.decide(known), DECISIONS)
    dotted = "mcp.server50.read_item_8"
    assert access.decide(dotted).allowed  # builds the table of other spellings, once
    spelled = _median(lambda: access.decide(dotted), DECISIONS)
    unlisted = _median(lambda: access.decide("mcp.server50.missing"), DECISIONS // 100)
    count = f"{len(names):,}"
    return [
        at_most(f"decide one call among {count} tools", deciding * 1e6, "µs", 0.5),
        Row("the same, by its dotted spelling", spelled * 1e6, "µs"),
        Row("refuse a name that is not listed, and say why", unlisted * 1e6, "µs"),
        at_most(f"compose over {count} tools", composing * 1e3, "ms", 50),
    ]


def _composed(registry: Snapshot, catalogue: dict[str, list[ToolDescriptor]]) -> Access:
    task = TaskPolicy(
        enabled=True,
        default_server_ids=tuple(registry.servers),
        tool_denylist=("delete_*", "server7/write_item_1?"),
        profile="everything",
    )
    session = SessionRequest(
        server_ids=tuple(registry.servers),
        tool_allowlist=("read_*", "write_*", "search_*"),
        tool_denylist=("*_item_99",),
    )
    return compile_access(compose(registry, task, session), catalogue)


def _world() -> tuple[Snapshot, dict[str, list[ToolDescriptor]]]:
    records = [
        ServerRecord(
            server_id=f"server{number}",
            transport="stdio",
            stdio=Stdio(command="true"),
            allowed_tools=("read_*", "write_*", "delete_*", "search_items"),
            effects=Effects(read=("read_*", "search_*")),
        )
        for number in range(SERVERS)
    ]
    registry = Snapshot(
        revision=1,
        servers={record.server_id: record for record in records},
        profiles={"everything": ProfileRecord(name="everything", tool_denylist=("drop_*",))},
        platform=PlatformRecord(tool_denylist=("shell_*", "eval")),
    )
    return registry, {record.server_id: _tools(record) for record in records}


def _tools(record: ServerRecord) -> list[ToolDescriptor]:
    verbs = ("read", "write", "delete", "shell")
    names = [f"{verbs[number % 4]}_item_{number}" for number in range(TOOLS_PER_SERVER)]
    return [describe(record, {"name": name, "inputSchema": {"type": "object"}}) for name in names]


def _median(work: Callable[[], object], number: int) -> float:
    """Return the median seconds of one execution."""
    return median(timeit.repeat(work, number=number, repeat=RUNS)) / number
