"""The control plane is gone, frozen, emptied or another: nodes call on, and say what they see."""

from __future__ import annotations

import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bascule.wire.api.nodes import NodeStanding
from tests.flow.load import Load, calling
from tests.flow.node_process import Plane, filled, node, notes, plane, standing, until_state
from tests.flow.up_process import Up
from tests.scale import scaled
from tests.waits import until

#: How many calls of a node have to succeed in each plight, or for how long.
CALLS = scaled(500)
SECONDS = scaled(60)


class Site:
    """A node under load, and its control plane, which may be served from another copy."""

    def __init__(self, served: Plane, up: Up, load: Load, stack: AsyncExitStack) -> None:
        self.served = served
        self.up = up
        self.load = load
        self._stack = stack
        self._data = served.up.data
        self._port = served.grpc.rpartition(":")[2]

    async def stop(self, order: signal.Signals = signal.SIGTERM) -> None:
        await self.served.up.end(order)

    async def serve(self, *words: str) -> None:
        """Serve again, at the same address."""
        given = ("--grpc-port", self._port, *words)
        self.served = await self._stack.enter_async_context(plane(self._data, *given))

    def keep(self, name: str) -> None:
        """Copy the registry that nobody serves now."""
        (self._data / name).mkdir()
        for file in self._data.glob("registry.db*"):
            shutil.copy2(file, self._data / name)

    def put_back(self, name: str | None = None) -> None:
        """Put a copy in the place of the registry, or nothing at all."""
        for file in self._data.glob("registry.db*"):
            file.unlink()
        if name is not None:
            for file in (self._data / name).iterdir():
                shutil.copy2(file, self._data)

    async def write(self, name: str) -> int:
        """Write a server that nobody uses; return the revision."""
        await self.served.put("servers", name, notes(server_id=name))
        return (await self.served.up.get("/healthz"))["revision"]

    async def is_shown(self, reason: str | None) -> bool:
        """Say whether the control plane shows the node as degraded for a reason, or as well."""
        nodes = (await self.served.up.get("/admin/api/nodes"))["nodes"]
        seen = [(one["state"], one["reason"]) for one in nodes]
        if reason is None:
            return seen == [("ok", None)]
        return any(state == "degraded" and reason in str(why) for state, why in seen)

    async def until_at(self, revision: int) -> None:
        """Wait until the node follows, and is there."""

        async def is_there() -> bool:
            found = await standing(self.up)
            return (found.state, found.revision) == ("ok", revision)

        await until(is_there)

    async def until_doubted(self, words: str) -> NodeStanding:
        """Wait until the node says why it does not take what it is offered."""

        async def doubts() -> bool:
            return words in str((await standing(self.up)).reason)

        await until(doubts)
        return await standing(self.up)


@asynccontextmanager
async def site(folder: Path) -> AsyncGenerator[Site]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        served, token, client = await enter(filled(folder / "plane"))
        up = await enter(node(folder / "node", served.grpc, token))
        yield Site(served, up, await enter(calling(client, up)), stack)


@pytest.mark.timeout(240)
@pytest.mark.requirement("sync:plane-away")
@pytest.mark.parametrize("order", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
async def test_no_call_fails_while_the_control_plane_is_stopped(
    order: signal.Signals, tmp_path: Path
):
    async with site(tmp_path) as here:
        revision = await here.write("one")
        await here.until_at(revision)
        await here.stop(order)
        assert (await until_state(here.up, "degraded")).revision == revision

        async def is_named() -> bool:  # one that ends says so first
            return "cannot be reached" in str((await standing(here.up)).reason)

        await until(is_named)
        await here.load.last(SECONDS)
        await here.serve()
        await here.until_at(await here.write("two"))


@pytest.mark.timeout(240)
@pytest.mark.requirement("sync:slow", "sync:plane-away")
async def test_a_control_plane_that_hangs_delays_no_call(tmp_path: Path):
    async with site(tmp_path) as here:
        await here.until_at(await here.write("one"))
        process = here.served.up.process
        process.send_signal(signal.SIGSTOP)
        try:
            # After 20 to 25 seconds of silence; earlier where rows of the ledger find no way up.
            assert "cannot be reached" in str((await until_state(here.up, "degraded")).reason)
            await here.load.last(SECONDS)
        finally:
            process.send_signal(signal.SIGCONT)
        await here.until_at(await here.write("two"))


@pytest.mark.timeout(240)
@pytest.mark.requirement("sync:implausible", "sync:plane-away", "registry:node-reason")
async def test_an_emptied_registry_takes_nothing_away_and_is_named(tmp_path: Path):
    async with site(tmp_path) as here:
        revision = await here.write("one")
        await here.until_at(revision)
        await here.stop()
        here.keep("right")
        here.put_back()
        await here.serve("--new-registry")
        found = await here.until_doubted("is another store")
        assert "without any record" in str(found.reason)
        assert "bascule registry announce --succeeds" in str(found.reason)
        assert (found.state, found.revision) == ("degraded", revision)
        await until(lambda: here.is_shown("without any record"))
        await here.load.more(CALLS)
        await here.stop()
        here.put_back("right")
        await here.serve()
        await here.until_at(await here.write("two"))
        await until(lambda: here.is_shown(None))


@pytest.mark.timeout(240)
@pytest.mark.requirement("sync:implausible", "sync:plane-away")
async def test_an_older_copy_is_named_and_so_is_one_that_was_written_past_the_old_head(
    tmp_path: Path,
):
    async with site(tmp_path) as here:
        await here.write("one")
        await here.stop()
        here.keep("older")
        await here.serve()
        await here.write("two")
        revision = await here.write("three")
        await here.until_at(revision)
        await here.stop()
        here.keep("right")
        here.put_back("older")
        await here.serve()
        found = await here.until_doubted(f"is back at revision {revision - 2} of its store")
        assert (found.state, found.revision) == ("degraded", revision)
        await here.load.more(CALLS)
        for name in ("x", "y", "z"):
            past = await here.write(name)
        assert past > revision
        found = await here.until_doubted("written to elsewhere")
        assert (found.state, found.revision) == ("degraded", revision)
        await here.load.more(CALLS)
        await here.stop()
        here.put_back("right")
        await here.serve()
        await here.until_at(await here.write("four"))
