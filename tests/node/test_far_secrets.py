"""Secrets of a control plane: asked for, kept while it is away, and looked at when they change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bascule.client.http import Unreachable
from bascule.errors import BasculeError, SecretUnbound, ServerUnavailable
from bascule.model.secret_use import SecretUse
from bascule.node import far_secrets
from bascule.node.far_secrets import FarSecrets
from tests.waits import Heard

USE = SecretUse("server", "fs", "digest")
OTHER = SecretUse("server", "jira", "digest")


class Port:
    """A control plane that has values, or none at all; ``away`` is why it does not answer."""

    def __init__(self, **values: str) -> None:
        self.values = values
        self.is_followed = True
        self.away: BasculeError | None = None
        self.asked: list[str] = []

    async def ask(self, name: str, use: SecretUse) -> str:
        self.asked.append(name)
        if self.away is not None:
            raise self.away
        if self.values[name] == "unbound":
            raise SecretUnbound(f"not bound to {use.id}")
        return self.values[name]


@asynccontextmanager
async def running(secrets: FarSecrets) -> AsyncGenerator[Heard[str], None]:
    heard: Heard[str] = Heard()
    secrets.subscribe(heard.hear)
    task = asyncio.create_task(secrets.run())
    try:
        yield heard
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_control_plane_that_answers_is_asked_each_time():
    port = Port(token="one")
    secrets = FarSecrets(port)
    assert await secrets.secret("token", USE) == "one"
    port.values["token"] = "two"
    assert await secrets.secret("token", USE) == "two"
    assert secrets.known_values == {"one", "two"}


@pytest.mark.requirement("sync:secrets-in-memory")
@pytest.mark.parametrize("noticed", [True, False], ids=["noticed", "not noticed yet"])
async def test_what_was_given_is_used_while_the_control_plane_is_away(noticed: bool):
    port = Port(token="one")
    secrets = FarSecrets(port)
    await secrets.secret("token", USE)
    port.is_followed, port.away = not noticed, Unreachable("gone")
    assert await secrets.secret("token", USE) == "one"
    assert len(port.asked) == (1 if noticed else 2)
    port.values.clear()
    port.is_followed, port.away = False, None  # another answers in its place, and is not believed
    assert await secrets.secret("token", USE) == "one"


async def test_what_was_given_for_one_record_is_not_used_for_another():
    port = Port(token="one")
    secrets = FarSecrets(port)
    await secrets.secret("token", USE)
    port.is_followed, port.away = False, Unreachable("gone")
    for use in (OTHER, SecretUse("server", "fs", "changed"), SecretUse("backend", "fs", "digest")):
        with pytest.raises(ServerUnavailable, match="was not given it before") as refused:
            await secrets.secret("token", use)
        assert refused.value.reason == "env_missing"


async def test_what_is_refused_is_forgotten():
    port = Port(token="one")
    secrets = FarSecrets(port)
    for refusal, error in (("unbound", SecretUnbound), (None, KeyError)):
        port.values, port.is_followed, port.away = {"token": "one"}, True, None
        await secrets.secret("token", USE)
        port.values = {} if refusal is None else {"token": refusal}
        with pytest.raises(error):
            await secrets.secret("token", USE)
        port.is_followed, port.away = False, Unreachable("gone")
        with pytest.raises(ServerUnavailable):
            await secrets.secret("token", USE)


async def test_one_that_does_not_answer_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(far_secrets, "ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(far_secrets, "SHORT_SECONDS", 0.01)
    never = asyncio.Event()

    class Frozen(Port):
        async def ask(self, name: str, use: SecretUse) -> str:
            if self.away is not None:
                await never.wait()
            return await super().ask(name, use)

    port = Frozen(token="one")
    secrets = FarSecrets(port)
    await secrets.secret("token", USE)
    port.away = Unreachable("frozen")
    assert await secrets.secret("token", USE) == "one"
    with pytest.raises(ServerUnavailable, match="cannot be asked for it now"):
        await secrets.secret("token", OTHER)


# --- changes


async def test_those_who_use_a_secret_are_told_when_its_value_is_another():
    port = Port(token="one", key="k")
    secrets = FarSecrets(port)
    await secrets.secret("token", USE)
    await secrets.secret("key", OTHER)
    async with running(secrets) as heard:
        port.values["token"] = "two"
        secrets.hear(frozenset({"token", "unused"}))
        assert await heard.reach(1) == ["token"]
        port.values["key"] = "unbound"
        secrets.hear(frozenset({"*"}))
        assert await heard.reach(2) == ["token", "key"]


async def test_nobody_is_told_of_a_value_that_is_the_same():
    port = Port(token="one", key="k")
    secrets = FarSecrets(port)
    for name in port.values:
        await secrets.secret(name, USE)
    async with running(secrets) as heard:
        port.values["token"] = "two"
        secrets.hear(frozenset({"*"}))
        assert await heard.reach(1) == ["token"]
        assert port.asked.count("key") == 2, "it was looked at first, by its name"


async def test_whoever_lacks_a_secret_tries_again_when_it_may_be_there():
    port = Port()
    secrets = FarSecrets(port)
    with pytest.raises(KeyError):
        await secrets.secret("token", USE)
    async with running(secrets) as heard:
        port.values["token"] = "one"
        secrets.hear(frozenset({"token"}))
        assert await heard.reach(1) == ["token"]


async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(far_secrets, "MOST_KEPT", 2)
    port = Port(a="1", b="2", c="3")
    secrets = FarSecrets(port)
    for name in port.values:
        await secrets.secret(name, USE)
    port.is_followed, port.away = False, Unreachable("gone")
    assert [await secrets.secret(name, USE) for name in ("b", "c")] == ["2", "3"]
    with pytest.raises(ServerUnavailable):
        await secrets.secret("a", USE)


async def test_no_repr_shows_a_value():
    secrets = FarSecrets(Port(token="s3cret-value"))
    await secrets.secret("token", USE)
    assert "s3cret-value" not in repr(vars(secrets)["_kept"])
