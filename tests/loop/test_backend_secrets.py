"""A backend's key from a secret: renewed for new requests, and read once more after a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bascule.errors import SecretUnbound
from bascule.loop.backend import UpstreamFailed
from bascule.loop.backends import Backends
from bascule.model.backend import BackendRecord
from bascule.model.secret_use import SecretUse, backend_use
from bascule.model.snapshot import Snapshot
from bascule.outbound.references import SecretSource
from bascule.outbound.rules import NodeRules
from bascule.testing import Gate, ScriptedUpstream, fails, says
from tests.loop.http_backend import streamed, text_of
from tests.scale import scaled
from tests.waits import SOON_SECONDS

OLD = "sk-old-key-of-this-backend"  # pragma: allowlist secret
NEW = "sk-new-key-of-this-backend"  # pragma: allowlist secret


@asynccontextmanager
async def backends(
    upstream: ScriptedUpstream, secrets: SecretSource
) -> AsyncGenerator[Backends, None]:
    record = BackendRecord(
        name="b", base_url=upstream.url, key_ref="secret://models", models=("m",)
    )
    made = Backends(lambda: snapshot, rules=NodeRules(), environ={}, secrets=secrets)
    snapshot = Snapshot(backends={"b": record})
    try:
        yield made
    finally:
        await made.close()


async def ask(made: Backends) -> str:
    async with asyncio.timeout(SOON_SECONDS):
        return text_of(await streamed((await made.choose("m")).upstream, SOON_SECONDS))


async def refused(made: Backends) -> str:
    with pytest.raises(UpstreamFailed) as caught:
        await ask(made)
    return str(caught.value)


def keys(upstream: ScriptedUpstream) -> list[str]:
    return [seen.headers["Authorization"].removeprefix("Bearer ") for seen in upstream.chats]


async def test_a_renewed_key_is_used_by_every_new_request_while_the_old_ones_end():
    vault, gate = {"models": OLD}, Gate()
    async with (
        ScriptedUpstream(default=says("ok", gate=gate)) as upstream,
        backends(upstream, vault) as made,
    ):
        under_way = asyncio.create_task(ask(made))
        await upstream.saw(1)
        vault["models"] = NEW
        made.renew_secret("models")
        later = asyncio.create_task(ask(made))
        await upstream.saw(2)
        gate.open()
        assert await asyncio.gather(under_way, later) == ["ok", "ok"]
        assert keys(upstream) == [OLD, NEW]


async def test_requests_go_on_while_keys_are_renewed_and_none_fails():
    vault = {"models": "v00"}
    async with ScriptedUpstream() as upstream, backends(upstream, vault) as made:
        for version in range(scaled(100)):
            before = len(upstream.chats)
            asking = [asyncio.create_task(ask(made)) for _ in range(3)]
            vault["models"] = f"v{version:02}"
            made.renew_secret("models")
            assert await ask(made) == "ok"
            assert await asyncio.gather(*asking) == ["ok"] * 3
            assert vault["models"] in keys(upstream)[before:]


async def test_a_secret_of_another_name_changes_nothing():
    vault = {"models": OLD}
    async with ScriptedUpstream() as upstream, backends(upstream, vault) as made:
        await ask(made)
        vault["models"] = NEW
        made.renew_secret("other")
        await ask(made)
        assert keys(upstream) == [OLD, OLD]


class Slow:
    """A vault that answers when it is told to, with what it had when it was asked."""

    def __init__(self) -> None:
        self.value = OLD
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def secret(self, name: str, use: SecretUse) -> str:
        del name, use
        value = self.value
        self.asked.set()
        await self.may_answer.wait()
        return value


async def test_a_key_that_changes_while_it_is_read_is_read_again():
    async with ScriptedUpstream() as upstream, backends(upstream, vault := Slow()) as made:
        asking = asyncio.create_task(ask(made))
        await vault.asked.wait()
        vault.value = NEW
        made.renew_secret("models")
        vault.may_answer.set()
        assert await asking == "ok"
        assert keys(upstream) == [NEW]


async def test_a_refused_key_that_has_changed_is_tried_once_more():
    vault = {"models": OLD}
    async with ScriptedUpstream(key=OLD) as upstream, backends(upstream, vault) as made:
        await ask(made)
        upstream.key = vault["models"] = NEW
        assert await ask(made) == "ok"
        assert keys(upstream) == [OLD, OLD, NEW]


async def test_a_refused_key_that_has_not_changed_is_tried_once():
    async with ScriptedUpstream(key=NEW) as upstream, backends(upstream, {"models": OLD}) as made:
        assert "Incorrect API key" in await refused(made)
        assert keys(upstream) == [OLD]


class Restless:
    """A vault that gives another value each time it is asked."""

    asked = 0

    async def secret(self, name: str, use: SecretUse) -> str:
        del name, use
        self.asked += 1
        return f"restless-value-{self.asked}"


async def test_a_key_that_changes_all_the_time_is_tried_twice_and_no_more():
    async with ScriptedUpstream(key=NEW) as upstream, backends(upstream, Restless()) as made:
        assert "Incorrect API key" in await refused(made)
        assert len(keys(upstream)) == 2


async def test_an_answer_that_repeats_the_key_before_shows_neither():
    vault = {"models": OLD}
    async with ScriptedUpstream() as upstream, backends(upstream, vault) as made:
        await ask(made)
        vault["models"] = NEW
        made.renew_secret("models")
        upstream.default = fails(400, f"neither {OLD} nor {NEW} will do")
        said = await refused(made)
        assert OLD not in said
        assert NEW not in said


class Unbound:
    """A vault whose secret is for nobody."""

    def __init__(self) -> None:
        self.asked: list[SecretUse] = []

    async def secret(self, name: str, use: SecretUse) -> str:
        self.asked.append(use)
        raise SecretUnbound(f"the secret {name!r} is not bound to {use.kind} {use.id!r}")


async def test_a_key_that_is_not_bound_to_the_backend_fails_it_and_nothing_is_sent():
    async with ScriptedUpstream() as upstream, backends(upstream, vault := Unbound()) as made:
        assert "key_ref: the secret 'models' is not bound to backend 'b'" in await refused(made)
        assert not upstream.requests
        record = BackendRecord(name="b", base_url=upstream.url, key_ref="secret://models")
        assert vault.asked == [backend_use(record)]
