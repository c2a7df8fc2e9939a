"""Nothing reaches a tool except through the bridge: what servers saw is what the ledger has.

Import rules say who may import the pool; these tests look at what really happens.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import json
import pkgutil
import sys
import tomllib
import typing
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import bascule
from bascule import AskFunction, Bridge, MemoryLedger, Server, ServerRecord, SessionLimits
from bascule.audit.events import CallIntent
from bascule.model.task import TaskPolicy
from bascule.node.bridge.opening import Opening
from bascule.node.bridge.session import Session
from bascule.testing import ScriptedServer, do
from bascule.wire.strict_json import dumps
from checks.tree import ROOT
from tests.doors.hostcalls.running import run_wat
from tests.doors.hostcalls.script import too_short
from tests.scale import scaled

POOL = "bascule.node.pool"
SENDS = {"send", "call", "call_tool", "request"}
AKIA = "AKIA" + "Q3ZK7WXN5PLM2RTV"


def scripted(server_id: str, journal: Path, **fields: Any) -> ServerRecord:
    server = ScriptedServer(
        behaviours={
            "echo": "echo",
            "error": "error",
            "never": "never",
            "crash": do("once", path=str(journal) + ".crashed", first=do("die", signal="KILL")),
            "big": do("big", bytes=100_000),
        },
        journal=journal,
    )
    command, args = server.command
    return Server.stdio(server_id, command, *args, **fields)


def received(journal: Path, key: bytes) -> Counter[tuple[str, str]]:
    """Count the calls a server received, by tool and digest of the arguments."""
    messages = [json.loads(line) for line in journal.read_bytes().splitlines()]
    calls = [each["params"] for each in messages if each.get("method") == "tools/call"]
    return Counter(
        (call["name"], hmac.digest(key, dumps(call["arguments"]), "sha256").hex()) for call in calls
    )


def intended(ledger: MemoryLedger, server_id: str) -> Counter[tuple[str, str]]:
    return Counter(
        (event.tool_name, event.arguments_digest)
        for event in ledger.events
        if isinstance(event, CallIntent) and event.server_id == server_id
    )


async def everything(session: Session, prefix: str) -> None:
    """Call in every way that ends well, badly, or not at all."""
    for spelling in (f"mcp__{prefix}__echo", f"mcp.{prefix}.echo", f"{prefix}/echo"):
        await session.call(spelling, {"text": spelling})
    await session.call(f"mcp__{prefix}__echo", {"text": f"a credential {AKIA}"})
    await session.call(f"mcp__{prefix}__echo", {"text": 7})
    await session.call(f"mcp__{prefix}__missing", {})
    await session.call(f"mcp__{prefix}__error", {"text": "x"})
    await session.call(f"mcp__{prefix}__big", {})
    await session.call(f"mcp__{prefix}__never", {}, timeout=0.2)
    await session.call(f"mcp__{prefix}__crash", {"text": "boom"})
    waiting = asyncio.create_task(session.call(f"mcp__{prefix}__never", {"text": "cancelled"}))
    await session.call(f"mcp__{prefix}__echo", {"text": "meanwhile"})
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    texts = (str(number) for number in range(20))
    await asyncio.gather(*(session.call(f"{prefix}/echo", {"text": text}) for text in texts))


@pytest.mark.requirement("call:one-bridge", "call:once")
async def test_every_call_a_server_received_is_one_the_ledger_announced(tmp_path: Path):
    asks = {"default": "never", "per_tool": {"error": "always"}}
    records = [
        scripted("open", tmp_path / "open"),
        scripted("asks", tmp_path / "asks", approval_policy=asks),
        scripted("none", tmp_path / "none", allow=["missing"]),
    ]
    ledger = MemoryLedger()
    approver = AskFunction(lambda question: question.server == "open")
    async with (
        asyncio.timeout(25),
        Bridge.open(records, ledger=ledger, approver=approver) as bridge,
    ):
        for server_id in ("open", "asks", "none"):
            async with bridge.session(server_ids=[server_id], caller="alice") as session:
                await session.tools()
                await everything(session, server_id)
                await everything(session, "other")
        tight = SessionLimits(max_total_tool_calls=1)
        async with bridge.session(server_ids=["open"], limits=tight) as session:
            await everything(session, "open")
    for server_id in ("open", "asks"):
        seen = received(tmp_path / server_id, ledger.digest_key)
        assert seen == intended(ledger, server_id)
        assert seen.total() > 20
    assert intended(ledger, "none").total() == 0
    assert received(tmp_path / "none", ledger.digest_key).total() == 0
    ends = {event.request_id for event in ledger.calls()}
    begins = [event.request_id for event in ledger.events if isinstance(event, CallIntent)]
    assert len(begins) == len(set(begins))
    assert set(begins) <= ends


@pytest.mark.requirement("call:one-bridge", "call:once", "hostcalls:buffer")
async def test_every_call_of_a_guest_is_one_the_ledger_announced(tmp_path: Path):
    times, ledger = scaled(1000), MemoryLedger()
    records = [scripted("open", tmp_path / "open"), scripted("other", tmp_path / "other")]
    task = TaskPolicy(enabled=True, default_server_ids=("open",))
    async with Bridge.open(records, ledger=ledger) as bridge:
        host: dict[str, Any] = {"bridge": bridge, "opening": Opening(task=task)}
        ran = await run_wat(too_short("open", "echo", times), **host)
        refused = await run_wat(too_short("other", "echo", times), **host)
    assert ran.exit.reason == "exited"
    assert refused.exit.reason == "trapped"  # it has no handle to call with
    seen = received(tmp_path / "open", ledger.digest_key)
    assert seen == intended(ledger, "open")
    assert seen.total() == times == ran.exit.calls
    assert not (tmp_path / "other").exists()


def modules() -> list[ModuleType]:
    """Import every module of the package, but those that run something when imported."""
    names = [found.name for found in pkgutil.walk_packages(bascule.__path__, "bascule.")]
    return [import_module(name) for name in names if not name.endswith("__main__")]


@pytest.mark.requirement("security:one-bridge:imports", "call:one-bridge")
def test_what_can_send_is_a_name_only_where_bridge_and_pool_are_joined():
    outside = [module for module in modules() if not module.__name__.startswith(POOL)]
    assert len(outside) > 50
    holders = {
        module.__name__
        for module in outside
        for value in vars(module).values()
        if _of_the_pool(value) and SENDS & set(dir(value))
    }
    assert holders == {"bascule.node.assembly"}


def _of_the_pool(value: object) -> bool:
    return str(getattr(value, "__module__", "")).startswith(POOL)


@pytest.mark.requirement("call:one-bridge")
def test_no_public_method_hands_out_anything_that_can_send():
    handed: set[type] = set()
    for name in bascule.__all__:
        kind = getattr(bascule, name)
        if not inspect.isclass(kind):
            continue
        for member in (m for m in vars(kind) if not m.startswith("_")):
            handed |= _returned(inspect.getattr_static(kind, member))
    assert handed
    for kind in handed:
        assert not (kind.__module__.startswith(POOL) and SENDS & set(dir(kind))), kind


def _returned(member: object) -> set[type]:
    function = getattr(member, "__func__", getattr(member, "fget", member))
    if not inspect.isfunction(function):
        return set()
    names = vars(sys.modules[function.__module__]) | {"BridgeCore": object, "Bridge": object}
    hint = typing.get_type_hints(function, names).get("return")
    return {each for each in (hint, *typing.get_args(hint)) if inspect.isclass(each)}


@pytest.mark.requirement("security:one-bridge:imports")
def test_the_import_rules_are_in_force():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {rule["id"]: rule for rule in settings["tool"]["importlinter"]["contracts"]}
    assert contracts["one-bridge"]["type"] == "protected"
    assert contracts["one-bridge"]["protected_modules"] == [POOL]
    assert contracts["one-bridge"]["allowed_importers"] == ["bascule.node.assembly"]
    assert POOL in contracts["narrow-bridge"]["forbidden_modules"]
    assert contracts["narrow-bridge"]["source_modules"] == ["bascule.node.bridge"]
    assert contracts["layers"]["exhaustive"] is True
    assert "lint-imports" in (ROOT / "checks" / "gate.py").read_text(encoding="utf-8")
