"""Clients that nobody here wrote, at a real process: each does all it can, by one table."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doors.gateway.clients.desk import NAMES, Desk, bascule, desk
from tests.doors.gateway.clients.drivers import KINDS, STEPS, Kind, playing
from tests.flow.up_process import Up

# The first ones install what the clients need.
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with bascule(tmp_path_factory.mktemp("clients") / "data") as up:
        yield up


def expected(kind: Kind, desk: Desk) -> dict[str, object]:
    """Return what a client reports; None for what it cannot do."""
    whole: dict[str, object] = {
        "list": desk.named(*NAMES),
        "call": "grüß Gott ☃",
        "error": "it went wrong",
        "unknown": kind.unknown.format(*desk.named("nobody")),
        "progress": [[1, 3], [2, 3], [3, 3], "done"],
        "cancel": "cancelled\n",  # as the server has it
        "change": desk.named(*sorted((*NAMES, "grown"))),
    }
    return {"version": kind.version, **whole, **dict.fromkeys(kind.cannot)}


@pytest.mark.requirement("gateway:clients")
@pytest.mark.parametrize("name", KINDS)
async def test_a_client_lists_calls_fails_sees_progress_cancels_and_hears_of_changes(
    up: Up, tmp_path: Path, name: str
):
    kind, own = KINDS[name], await desk(up, tmp_path, name.replace("-", "_"))
    async with playing(kind, own.task(STEPS), tmp_path) as played:
        said = await played.next()
    assert kind.remote or played.complaints.read_text(encoding="utf-8") == ""
    wanted = expected(kind, own)
    assert kind.unknown.format(*own.named("nobody")) in said["unknown"]
    assert {**said, "unknown": wanted["unknown"]} == wanted


OURS = "the token is not valid, has expired or was revoked"
#: What each client shows when it is refused; one that looks for OAuth finds none, and ends.
REFUSED = {
    "python-sdk-1": "401 Unauthorized",
    "python-sdk-2": OURS,
    "python-sdk-2-legacy": OURS,
    "typescript-sdk-1": OURS,
    "typescript-sdk-2": "the server requires authorization (HTTP 401)",
    "typescript-sdk-2-legacy": OURS,
    "mcp-remote": OURS,
    "inspector": "auth_required",
}


@pytest.mark.requirement("gateway:clients")
@pytest.mark.parametrize("name", REFUSED)
async def test_a_client_whose_token_is_not_valid_is_told_so_and_ends(
    up: Up, tmp_path: Path, name: str
):
    kind, own = KINDS[name], Desk(tmp_path / "desk", up.url, "nobody")
    own.token = "nobody"
    async with playing(kind, own.task(()), tmp_path) as played:
        said = await played.next()
    assert not said["refused"].startswith("listed")
    assert REFUSED[name] in said["refused"] + played.complaints.read_text(encoding="utf-8")


@pytest.mark.requirement("gateway:clients:restart")
@pytest.mark.parametrize("name", ["python-sdk-1", "typescript-sdk-1"])
async def test_a_session_goes_on_after_the_process_was_killed_and_started_again(
    tmp_path: Path, name: str
):
    data, folder = tmp_path / "data", tmp_path / "driver"
    folder.mkdir()
    async with bascule(data) as up:
        own = await desk(up, tmp_path, "desk")
        async with playing(KINDS[name], own.task(["call", "pause"]), folder) as played:
            assert await played.next() == {"paused": True}
            await up.end(signal.SIGKILL)
            async with bascule(data, "--port", up.url.rpartition(":")[2]):
                await played.go_on()
                assert (await played.next())["pause"] == "again"
