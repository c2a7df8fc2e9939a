"""The laws of dry runs: they promise what the write does, and leave the store as it is."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.audit.events import Act as NotedAct
from bascule.audit.events import PolicyLoosened
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.model.kinds import COLLECTIONS, KEY_FIELDS, KINDS
from bascule.model.role import Role
from tests.asgi.caller import Answer
from tests.control.api.desk import ADMIN, Desk, open_desk
from tests.control.registry.build import PLAIN, server
from tests.scale import scaled

REMOTE = {
    "server_id": "fs",
    "transport": "streamable_http",
    "http": {"url": "https://example.org/mcp", "auth_ref": "secret://token"},
}
#: What each kind may become: a change of access, none at all, a new target, and what is refused.
CHANGES: dict[str, list[dict[str, Any]]] = {
    "server": [{"allowed_tools": ["read_*"]}, {"enabled": False}, REMOTE, {"budgets": 3}],
    "task": [{"mcp": {"enabled": True, "default_server_ids": ["fs"]}}, {"name": "x"}, {"mcp": 1}],
    "profile": [{"tool_denylist": []}, {"default_server_ids": ["fs"]}, {"read_only": "y"}],
    "platform": [{"tool_denylist": ["read_*"]}, {"default_approval": "always"}, {"rules": 1}],
    "backend": [{"enabled": False}, {"key_ref": "secret://k"}, {"base_url": 1}],
    "user": [{"tool_denylist": ["*"]}, {"enabled": False}, {"groups": 1}],
}

ROLES: list[Role] = ["admin", "admin", "operator", "viewer"]


class Act(NamedTuple):
    """One write: its request, whoever asks, and what If-Match expects, from the newest revision."""

    method: str
    path: str
    body: Any
    role: Role
    expected: int | None = None


@st.composite
def acts(draw: st.DrawFn) -> Act:
    role = draw(st.sampled_from(ROLES))
    kind = draw(st.sampled_from(KINDS))
    method = draw(st.sampled_from(["POST", "PUT", "PUT", "PATCH", "DELETE", "rollback"]))
    if method == "rollback":
        back = {"revision": draw(st.integers(0, 6))}
        only = {"only": [{"kind": kind, "id": PLAIN[kind][0]}]} if draw(st.booleans()) else {}
        return Act("POST", "/rollback", back | only, role)
    key, plain = PLAIN[kind]
    change = draw(st.sampled_from([{}, *CHANGES[kind]]))
    many = f"/{COLLECTIONS[kind]}"
    if method == "POST" and kind != "platform":
        return Act(method, many, plain | change, role)
    method = "PUT" if method == "POST" else method
    one = many if kind == "platform" else f"{many}/{key}"
    body = {"PUT": plain | change, "PATCH": change, "DELETE": None}[method]
    expected = draw(st.sampled_from([None, None, 0, -1]))
    return Act(method, one, body, role, expected)


async def asked(desk: Desk, act: Act, *, dry_run: bool) -> Answer:
    path = f"{ADMIN}{act.path}?dry_run={str(dry_run).lower()}"
    body = () if act.body is None else (act.body,)
    newest = desk.service.view.revision
    headers = {} if act.expected is None else {"If-Match": f'"{max(newest + act.expected, 1)}"'}
    return await desk.ask(act.method, path, *body, role=act.role, headers=headers)


async def promised(desk: Desk, act: Act, store: Path, notes: Sequence[PolicyLoosened]) -> None:
    """Try a write and do it; fail where the two differ, or where trying left a trace."""
    before, revision, noted = dump(store), desk.service.view.revision, len(notes)
    trial = await asked(desk, act, dry_run=True)
    assert dump(store) == before
    assert (desk.service.view.revision, len(notes)) == (revision, noted)
    real = await asked(desk, act, dry_run=False)
    if trial.status != 200:
        told, done = trial.json["error"], real.json["error"]
        assert (trial.status, told["code"]) == (real.status, done["code"])
        return
    assert real.status in (200, 201), real.body
    diff = await desk.service.diff(revision, desk.service.view.revision)
    assert trial.json["diff"] == msgspec.json.decode(msgspec.json.encode(diff))
    assert trial.json["revision"] == revision
    assert trial.json["warnings"] == real.json.get("warnings", [])


def dump(store: Path) -> list[str]:
    with sqlite3.connect(store) as opened:
        lines = [*opened.iterdump()]
    opened.close()
    return lines


@pytest.mark.requirement("admin:dry-run")
@settings(max_examples=scaled(200))
@given(st.lists(acts(), min_size=1, max_size=10))
def test_a_dry_run_promises_what_the_write_does_and_changes_nothing(many: list[Act]):
    async def run() -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "registry.db"
            notes: list[PolicyLoosened] = []

            async def note(act: NotedAct) -> None:
                assert isinstance(act, PolicyLoosened)
                notes.append(act)

            async with open_desk(store=await SqliteStore(path).open()) as desk:
                desk.service.note = note
                await desk.ask("POST", f"{ADMIN}/servers", server("other"))
                for act in many:
                    await promised(desk, act, path, notes)

    asyncio.run(run())


def test_every_kind_has_changes_to_try():
    assert set(CHANGES) == set(KINDS) == {*KEY_FIELDS, "platform"}
