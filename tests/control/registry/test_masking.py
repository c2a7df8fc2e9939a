"""Literal values are hidden on the way out and kept on the way back."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.control.registry.masks import MASK, masked
from bascule.control.registry.merge import merged
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Stored
from bascule.errors import InvalidRecord
from tests.control.registry.build import BY, server

SECRET = "correct horse"
#: Where a reference must stand, a literal can only be the value to fall back on.
FALLBACK = f"${{T:-{SECRET}}}"
LOCAL = server(
    "fs",
    stdio={
        "command": "fs",
        "env": {
            "TOKEN": SECRET,
            "LOG": "warn",
            "KEY": "secret://fs",
            "HOME": "${HOME}/data",
            "TEAM": "${TEAM:-correct horse}",
            "EMPTY": "",
        },
    },
)
REMOTE: dict[str, Any] = {
    "server_id": "far",
    "transport": "http",
    "http": {
        "url": "https://example.org/mcp",
        "headers": {"X-Key": SECRET, "Authorization": "Bearer ${TOKEN}"},
        "auth_ref": FALLBACK,
    },
}
BACKEND = {
    "name": "b",
    "base_url": "https://example.org",
    "headers": {"X": SECRET},
    "key_ref": FALLBACK,
}
TASK = {"task_id": "t", "executable": {"path": "t.wasm", "env": {"A": SECRET}}}
EVERYTHING = [
    ("server", "fs", LOCAL),
    ("server", "far", REMOTE),
    ("backend", "b", BACKEND),
    ("task", "t", TASK),
]


def masked_record(stored: Stored) -> dict[str, Any]:
    return masked(stored.kind, stored.record)


@pytest.mark.parametrize(("kind", "key", "plain"), EVERYTHING)
async def test_what_is_shown_holds_no_literal_and_comes_back_whole(
    service: RegistryService, kind: Any, key: str, plain: dict[str, Any]
):
    await service.put(kind, key, plain, BY)
    stored = await service.get(kind, key)
    shown = masked_record(stored)
    assert SECRET not in repr(shown)
    assert MASK in repr(shown)
    assert (await service.put(kind, key, shown, BY)).change is None
    assert await service.get(kind, key) == stored


async def test_references_and_empty_values_are_shown(service: RegistryService):
    await service.put("server", "fs", LOCAL, BY)
    assert masked_record(await service.get("server", "fs"))["stdio"]["env"] == {
        "TOKEN": MASK,
        "LOG": MASK,
        "KEY": "secret://fs",
        "HOME": "${HOME}/data",
        "TEAM": MASK,
        "EMPTY": "",
    }


@pytest.mark.parametrize(
    ("text", "is_shown"),
    [
        ("${TOKEN}", True),
        ("Bearer ${TOKEN}", True),
        ("bearer  ${TOKEN}", True),
        ("https://${HOST}/mcp", True),
        ("${A}:${B}", True),
        ("${PATH}:/usr/local/bin", True),
        ("hunter2-${SUFFIX}", False),
        ("${PREFIX}hunter2", False),
        ("Bearer hunter2${SUFFIX}", False),
        ("https://me:hunter2@${HOST}/", False),
        ("user=${USER};password=hunter2", False),
    ],
)
async def test_text_beside_a_reference_is_shown_only_where_it_is_no_secret(
    service: RegistryService, text: str, is_shown: bool
):
    record = server("fs", stdio={"command": "fs", "env": {"VALUE": text}})
    await service.put("server", "fs", record, BY)
    stored = await service.get("server", "fs")
    shown = masked_record(stored)
    assert shown["stdio"]["env"] == {"VALUE": text if is_shown else MASK}
    assert (await service.put("server", "fs", shown, BY)).change is None


async def test_a_masked_value_is_kept_and_a_new_one_counts(service: RegistryService):
    await service.put("server", "fs", LOCAL, BY)
    shown = masked_record(await service.get("server", "fs"))
    shown["stdio"]["env"]["LOG"] = "debug"
    del shown["stdio"]["env"]["EMPTY"]
    await service.put("server", "fs", shown, BY)
    await service.patch("server", "fs", {"stdio": {"env": {"TOKEN": MASK, "NEW": "1"}}}, BY)
    stdio = service.snapshot().servers["fs"].stdio
    assert stdio is not None
    assert (stdio.env["TOKEN"], stdio.env["LOG"], stdio.env["NEW"]) == (SECRET, "debug", "1")
    assert "EMPTY" not in stdio.env


async def test_a_mask_for_which_nothing_is_stored_is_refused(service: RegistryService):
    hidden = server("new", stdio={"command": "x", "env": {"A": MASK, "B": "1"}})
    with pytest.raises(InvalidRecord) as raised:
        await service.create("server", hidden, BY)
    assert raised.value.problems[0].startswith("stdio.env.A: is masked")
    await service.put("server", "fs", LOCAL, BY)
    with pytest.raises(InvalidRecord, match=r"http\.headers\.X"):
        await service.patch("server", "fs", {"http": {"headers": {"X": MASK}}}, BY)


async def test_masks_in_odd_places_are_left_to_the_validator(service: RegistryService):
    for odd in ({"stdio": MASK}, {"stdio": {"env": MASK}}, {"stdio": {"env": {"A": 1}}}):
        with pytest.raises(InvalidRecord):
            await service.create("server", server("x", **odd), BY)


MOVES: list[tuple[Any, str, dict[str, Any], dict[str, Any]]] = [
    ("server", "far", REMOTE, {"http": {"url": "https://other.org/mcp"}}),
    ("server", "far", REMOTE, {"http": {"url": "http://example.org/mcp"}}),
    ("server", "far", REMOTE, {"http": {"url": "https://example.org@other.org/mcp"}}),
    ("server", "far", REMOTE, {"http": {"url": "https://example.org${X:-.other.org}/"}}),
    ("server", "far", REMOTE, {"http": {"url": "${URL}", "headers": {"X-Key": MASK}}}),
    ("backend", "b", BACKEND, {"base_url": "https://other.org"}),
    ("backend", "b", BACKEND, {"base_url": "https://other.org", "key_ref": "${KEY}"}),
]


@pytest.mark.parametrize(("kind", "key", "plain", "patch"), MOVES)
async def test_a_literal_that_is_kept_is_not_sent_to_another_address(
    service: RegistryService, kind: Any, key: str, plain: dict[str, Any], patch: dict[str, Any]
):
    await service.put(kind, key, plain, BY)
    whole = merged(kind, masked_record(await service.get(kind, key)), patch)
    with pytest.raises(InvalidRecord, match="another address"):
        await service.patch(kind, key, patch, BY)
    with pytest.raises(InvalidRecord, match="another address"):
        await service.put(kind, key, whole, BY)
    with pytest.raises(InvalidRecord, match="another address"):
        await service.import_records([(kind, whole)], "upsert", BY)


async def test_a_client_secret_is_not_sent_to_another_place_that_gives_tokens(
    service: RegistryService,
):
    auth = {
        "type": "oauth_client_credentials",
        "ref": FALLBACK,
        "token_url": "https://login.example.org/token",
        "client_id": "us",
    }
    http = {"url": "https://example.org/mcp", "auth": auth}
    await service.put("server", "far", {**REMOTE, "http": http}, BY)
    moved = {"token_url": "https://other.org/token"}
    with pytest.raises(InvalidRecord, match="another address"):
        await service.patch("server", "far", {"http": {"auth": moved}}, BY)


async def test_literals_move_when_they_are_given_again_and_references_always(
    service: RegistryService,
):
    await service.put("server", "far", REMOTE, BY)
    moved = {"url": "https://other.org", "headers": {"X-Key": "new"}, "auth_ref": "${TOKEN}"}
    await service.patch("server", "far", {"http": moved}, BY)
    await service.patch("server", "far", {"http": {"url": "https://other.org/elsewhere"}}, BY)
    await service.put("server", "fs", LOCAL, BY)
    await service.patch("server", "fs", {"stdio": {"command": "another"}}, BY)
