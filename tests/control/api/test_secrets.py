"""Secrets over HTTP: set, bound, listed and removed by administrators, and never returned."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bascule.asgi.guard import GuardedApp
from bascule.audit.events import Act
from bascule.audit.ledger import LedgerUnavailable, MemoryLedger
from bascule.control.api.secrets import secret_routes
from bascule.control.envelope import new_key
from bascule.control.registry.service import open_registry
from bascule.control.secret_keys import KEY_NAME
from bascule.control.secrets import Secrets, open_secrets
from bascule.model.role import ROLES
from bascule.model.secret_use import server_use
from bascule.policy.known_values import spellings
from bascule.testing.clock import FakeClock
from bascule.wire.api.addresses import SECRETS
from checks.openapi import describe
from tests.control.api.desk import Desk
from tests.control.keeping_secrets import BY, VALUE, acts, server
from tests.control.registry.build import BY as AUTHOR
from tests.control.registry.memory_store import MemoryStore

TOKEN = f"{SECRETS}/token"


class Ledger(MemoryLedger):
    """A ledger that can be made to refuse."""

    down = False

    async def note(self, act: Act) -> None:
        if self.down:
            raise LedgerUnavailable("the disk is full")
        await super().note(act)


class SecretsDesk(Desk):
    """A desk where secrets are dealt with; ``secrets`` and ``ledger`` are within reach."""

    secrets: Secrets
    ledger: Ledger

    async def write(self, host: str = "a.example.com") -> None:
        """Write the record of a server that uses the secret."""
        record = msgspec.to_builtins(server(host=host))
        await self.service.put("server", "github", record, AUTHOR)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[SecretsDesk, None]:
    clock, ledger = FakeClock(), Ledger()
    async with open_registry(MemoryStore(clock=clock), clock=clock) as service:
        records = service.snapshot
        async with open_secrets(
            tmp_path, note=ledger.note, records=records, clock=clock
        ) as secrets:
            made = SecretsDesk(service, clock, None)
            made.secrets, made.ledger = secrets, ledger
            routes = secret_routes(secrets)
            made.app = GuardedApp(routes, made.tokens)
            made.document = describe(routes)
            await made.write()
            await made.ready()
            yield made


@pytest.mark.requirement("security:secrets:store")
async def test_a_secret_is_set_bound_listed_used_and_removed(desk: SecretsDesk):
    body = {"value": VALUE, "bind": [{"server": "github"}]}
    made = await desk.ask("PUT", TOKEN, body)
    assert (made.status, made.json["version"]) == (201, 1)
    [bound] = made.json["bound"]
    assert (bound["kind"], bound["id"], bound["state"]) == ("server", "github", "bound")
    assert made.json["used_by"] == [{"kind": "server", "id": "github"}]
    assert await desk.secrets.secret("token", server_use(server())) == VALUE
    again = await desk.ask("PUT", TOKEN, {"value": "another-value"})
    assert (again.status, again.json["version"], len(again.json["bound"])) == (200, 2, 1)
    listed = await desk.ask("GET", SECRETS)
    assert listed.json == {"secrets": [again.json]}
    ended = await desk.ask("DELETE", TOKEN)
    assert (ended.status, ended.json) == (200, {"deleted": "token"})
    assert (await desk.ask("GET", SECRETS)).json == {"secrets": []}


@pytest.mark.requirement("security:secrets:never-returned")
async def test_no_answer_has_a_value_in_any_spelling(desk: SecretsDesk):
    answers = [
        await desk.ask("PUT", TOKEN, {"value": VALUE, "bind": [{"server": "github"}]}),
        await desk.ask("PUT", TOKEN, {"value": VALUE, "bind": [{"server": "none"}]}),
        await desk.ask("PUT", TOKEN, {"value": VALUE, "valeu": VALUE}),
        await desk.ask("PUT", f"{SECRETS}/a%20b", {"value": VALUE}),
        await desk.ask("PUT", TOKEN, {"value": [VALUE]}),
        await desk.ask("PUT", TOKEN, {"value": VALUE + "\0"}),
        await desk.ask("PUT", TOKEN, {"value": VALUE * 4_000}),
        await desk.ask("PUT", TOKEN, VALUE),
        await desk.ask("PUT", TOKEN, raw=b'{"value": "' + VALUE.encode()),
        await desk.ask("PUT", TOKEN, raw=b'{"value": "c4nary-x", "value": "c4nary-y"}'),
        await desk.ask("PUT", TOKEN, raw=b'{"value": "c4nary \\ud800"}'),
        await desk.ask("PUT", TOKEN, raw=b'{"value": "c4nary \xff"}'),
        await desk.ask("POST", f"{TOKEN}/bind", {"server": "github", "value": VALUE}),
        await desk.ask("GET", SECRETS),
        await desk.ask("GET", TOKEN),
        await desk.ask("DELETE", TOKEN),
    ]
    assert {answer.status for answer in answers} == {200, 201, 400, 405, 422}
    forms = ["c4nary", *spellings(VALUE)]
    assert [a.body for a in answers if any(form.encode() in a.body for form in forms)] == []


async def test_a_record_that_changes_is_not_bound_any_more_until_somebody_binds_it_again(
    desk: SecretsDesk,
):
    await desk.ask("PUT", TOKEN, {"value": VALUE, "bind": [{"server": "github"}]})
    await desk.write(host="thief.example.com")
    [listed] = (await desk.ask("GET", SECRETS)).json["secrets"]
    assert [bound["state"] for bound in listed["bound"]] == ["changed"]
    bound = await desk.ask("POST", f"{TOKEN}/bind", {"server": "github"})
    assert (bound.status, bound.json["bound"][0]["state"]) == (200, "bound")
    unbound = await desk.ask("POST", f"{TOKEN}/unbind", {"server": "github"})
    assert (unbound.status, unbound.json["bound"]) == (200, [])
    again = await desk.ask("POST", f"{TOKEN}/unbind", {"server": "github"})
    assert again.code == "not_found"


async def test_an_unknown_name_is_not_found(desk: SecretsDesk):
    for answer in (
        await desk.ask("DELETE", TOKEN),
        await desk.ask("POST", f"{TOKEN}/bind", {"server": "github"}),
        await desk.ask("POST", f"{TOKEN}/unbind", {"server": "github"}),
    ):
        assert (answer.status, answer.code) == (404, "not_found")
    assert acts(desk.ledger) == []


#: Where it is sent, the body, and the path that the answer must name.
MALFORMED: dict[str, tuple[str, Any, str]] = {
    "no value": ("", {}, "value: "),
    "an empty value": ("", {"value": ""}, "value: "),
    "a value that is a number": ("", {"value": 12345}, "value: "),
    "an unknown field": ("", {"value": VALUE, "ttl": 1}, "ttl: "),
    "an unknown server": ("", {"value": VALUE, "bind": [{"server": "no"}]}, "bind[0].server: "),
    "an unknown backend": ("", {"value": VALUE, "bind": [{"backend": "no"}]}, "bind[0].backend: "),
    "nobody": ("", {"value": VALUE, "bind": [{}]}, "bind[0]: "),
    "an unknown kind": ("", {"value": VALUE, "bind": [{"task": "a"}]}, "bind[0].task: "),
    "no list": ("", {"value": VALUE, "bind": "github"}, "bind: "),
    "both": ("/bind", {"server": "github", "backend": "main"}, "one of both"),
    "neither": ("/unbind", {}, "one of both"),
    "a server that is gone": ("/bind", {"server": "gone"}, "server: "),
    "a digest of one's own": ("/bind", {"server": "github", "digest": "x"}, "digest: "),
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_request_is_refused_by_path_and_nothing_is_done(
    desk: SecretsDesk, case: str
):
    where, body, path = MALFORMED[case]
    await desk.secrets.set("token", VALUE, by=BY)
    before = await desk.secrets.listing()
    answer = await desk.ask("PUT" if not where else "POST", TOKEN + where, body)
    assert (answer.status, answer.code) == (422, "invalid_record"), answer.body
    assert path in answer.json["error"]["details"]["problems"][0]
    assert await desk.secrets.listing() == before


async def test_an_unfit_name_and_an_unknown_parameter_are_refused(desk: SecretsDesk):
    unfit = await desk.ask("PUT", f"{SECRETS}/-a", {"value": VALUE})
    assert (unfit.status, unfit.json["error"]["message"][:5]) == (422, "name:")
    for method, path in (("GET", SECRETS), ("DELETE", TOKEN)):
        assert (await desk.ask(method, f"{path}?shwo=1")).status == 400


async def test_every_act_is_noted_in_the_callers_name(desk: SecretsDesk):
    await desk.ask("PUT", TOKEN, {"value": VALUE, "bind": [{"server": "github"}]})
    await desk.ask("POST", f"{TOKEN}/unbind", {"server": "github"})
    await desk.ask("POST", f"{TOKEN}/bind", {"server": "github"})
    await desk.ask("DELETE", TOKEN)
    [name] = {
        f"admin:{record.name}" for record in await desk.tokens.records() if record.role == "admin"
    }
    assert acts(desk.ledger) == [
        ("set", "token", name, 1, None),
        ("bound", "token", name, 1, "github"),
        ("unbound", "token", name, None, "github"),
        ("bound", "token", name, None, "github"),
        ("removed", "token", name, None, None),
    ]


async def test_what_cannot_be_noted_is_answered_with_503_and_not_done(desk: SecretsDesk):
    await desk.secrets.set("token", VALUE, by=BY)
    before = await desk.secrets.listing()
    desk.ledger.down = True
    for answer in (
        await desk.ask("PUT", TOKEN, {"value": "another-value"}),
        await desk.ask("POST", f"{TOKEN}/bind", {"server": "github"}),
        await desk.ask("DELETE", TOKEN),
    ):
        assert (answer.status, answer.json["error"]["details"]["reason"]) == (
            503,
            "ledger_unavailable",
        )
    assert await desk.secrets.listing() == before


async def test_a_key_that_is_gone_is_answered_with_503(desk: SecretsDesk, tmp_path: Path):
    await desk.secrets.set("token", VALUE, by=BY)
    key = new_key()
    async with open_secrets(tmp_path, note=MemoryLedger().note) as other:
        await other.rekey(key, by=BY)
    await desk.secrets.remove("token", by=BY)  # needs no key
    async with open_secrets(tmp_path, key=key, note=MemoryLedger().note) as other:
        await other.set("token", VALUE, by=BY, bind=[server_use(server())])
    for answer in (
        await desk.ask("PUT", TOKEN, {"value": "another-value"}),
        await desk.ask("GET", SECRETS),
    ):
        assert (answer.status, answer.code) == (503, "store_unavailable")
        assert KEY_NAME in answer.json["error"]["message"]


async def test_only_an_administrator_sees_sets_binds_or_removes_secrets(desk: SecretsDesk):
    for role in set(ROLES) - {"admin"}:
        answers = [
            await desk.ask("GET", SECRETS, role=role),
            await desk.ask("PUT", TOKEN, {"value": VALUE}, role=role),
            await desk.ask("DELETE", TOKEN, role=role),
            await desk.ask("POST", f"{TOKEN}/bind", {"server": "github"}, role=role),
            await desk.ask("POST", f"{TOKEN}/unbind", {"server": "github"}, role=role),
        ]
        assert [answer.code for answer in answers] == ["forbidden"] * 5
