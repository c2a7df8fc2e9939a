"""References to secrets: who asks, what is noted, and what is said when there is none."""

from __future__ import annotations

import pytest

from bascule.errors import SecretUnbound, ServerUnavailable
from bascule.model.secret_use import SecretUse
from bascule.outbound.references import MappedSecrets, Reading, SecretResolver, resolver_of
from bascule.outbound.rules import NodeRules

USE = SecretUse("server", "github", "digest")
TOKEN = "glpat-0123456789abcdef"  # pragma: allowlist secret


class Vault:
    """Secrets in a dictionary; some are for nobody. It notes who asked."""

    def __init__(self, **values: str) -> None:
        self.values = values
        self.unbound: set[str] = set()
        self.asked: list[tuple[str, SecretUse]] = []

    async def secret(self, name: str, use: SecretUse) -> str:
        self.asked.append((name, use))
        if name in self.unbound:
            raise SecretUnbound(f"the secret {name!r} is not bound to server {use.id!r}")
        return self.values[name]


def reading(vault: SecretResolver | None) -> Reading:
    return Reading(NodeRules(), {}, vault, USE)


@pytest.mark.requirement("references:secret:resolve")
async def test_a_secret_is_asked_for_with_its_use_and_masked_from_then_on():
    vault = Vault(token=TOKEN)
    one = reading(vault)
    assert await one.value("secret://token", "stdio.env.TOKEN") == TOKEN
    assert await one.credential("token", "http.auth_ref") == TOKEN
    assert vault.asked == [("token", USE)] * 2
    assert (one.secrets_read, one.known) == ({"token"}, {TOKEN})


async def test_a_name_is_noted_whether_or_not_there_is_such_a_secret():
    one = reading(Vault())
    with pytest.raises(ServerUnavailable, match="no secret named 'token'") as caught:
        await one.value("secret://token", "stdio.env.TOKEN")
    assert caught.value.reason == "env_missing"
    assert one.secrets_read == {"token"}


async def test_who_may_not_have_a_secret_is_told_where_it_stands():
    vault = Vault(token=TOKEN)
    vault.unbound.add("token")
    with pytest.raises(ServerUnavailable) as caught:
        await reading(vault).value("secret://token", "stdio.env.TOKEN")
    said = "stdio.env.TOKEN: the secret 'token' is not bound to server 'github'"
    assert (str(caught.value), caught.value.reason) == (said, "secret_unbound")


async def test_only_what_was_read_and_is_another_now_has_changed():
    vault = Vault(a="first", b="second", c="third")
    one = reading(vault)
    for name in "abc":
        await one.value(f"secret://{name}", "stdio.env.X")
    assert await one.changed_secrets() == set()
    vault.values["a"] = "other"
    vault.unbound.add("b")
    del vault.values["c"]
    assert await one.changed_secrets() == {"a"}
    assert await reading(None).changed_secrets() == set()


async def test_values_by_name_are_read_as_they_are_now_and_not_shown():
    values = {"token": TOKEN}
    found = resolver_of(values)
    assert isinstance(found, MappedSecrets)
    assert await found.secret("token", USE) == TOKEN
    values["token"] = "another"
    assert await found.secret("token", USE) == "another"
    with pytest.raises(KeyError):
        await found.secret("other", USE)
    assert "another" not in repr(found)
    assert resolver_of(vault := Vault()) is vault
    assert resolver_of(None) is None
