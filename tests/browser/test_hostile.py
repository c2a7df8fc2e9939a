"""Words that could deceive, in every place that shows somebody's words: they are only ever text."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from bascule.wire.api.addresses import ADMIN
from tests.browser.hostile import BIG, EVIL, MARKUP, RAW, caller, hostile
from tests.browser.screen import SCREENS, Screen
from tests.browser.site import Site
from tests.browser.visit import Visit
from tests.waits import until

pytestmark = pytest.mark.requirement("admin:page:only-text")
RECORD_PARTS = ("edit", "toml", "history")
#: Parts of screens; each has an address that is marked where one is there.
PARTS = (
    *(f"servers/evil/{part}" for part in ("tools", "test", "access", *RECORD_PARTS)),
    *(f"tasks/evil/{part}" for part in ("effective", *RECORD_PARTS)),
    *(f"people/evil/{part}" for part in ("effective", *RECORD_PARTS)),
    *("profiles/evil/effective", "platform/backends", "platform/backends/evil"),
    *(f"tools/evil/{tool}" for tool in ("strange", "many", "long", "constructor")),
    *(f"tools/evil/{tool}/callers" for tool in ("strange", "__proto__")),
    *(f"tools/evil/{tool}/try" for tool in ("strange", "many", "__proto__", "key")),
)
_FOUND = f"""
[...document.documentElement.outerHTML.matchAll(/.{{0,80}}[{RAW}].{{0,20}}/gu)].map((one) => one[0])
"""


@pytest.fixture(scope="module")
async def evil(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with hostile(tmp_path_factory.mktemp("evil")) as site:
        yield site


async def go(screen: Screen, place: str) -> None:
    await screen.run(f"location.hash = '#/{place}'")
    here = screen.page.locator(f"a[href='#/{place}'][aria-current=page]")
    await expect(here.first).to_be_visible()


async def harmless(screen: Screen) -> None:
    """Look that what cannot be seen is shown as an escape, in texts and in attributes."""
    await screen.settled()
    await expect(screen.heading).to_be_visible()
    assert not await screen.run(_FOUND), screen.page.url
    assert await screen.page.locator("main img, main script").count() == 0
    await screen.fits()


async def call(site: Site, token: str, tool: str, **arguments: object) -> tuple[int, object]:
    return await site.call(token, f"mcp__evil__{tool}", **arguments)


async def test_no_screen_takes_words_for_anything_but_text(visit: Visit, evil: Site):
    token = await caller(evil)
    for tool in ("strange", "fails"):
        await call(evil, token, tool)
    status, _ = await call(evil, token, "constructor", text=EVIL)
    assert status == 409
    screen = await visit(evil)
    await screen.open("servers")
    for place in SCREENS:
        await go(screen, place)
        name = await screen.nav.locator(f"a[href='#/{place}']").inner_text()
        await expect(screen.heading).to_have_text(name.split("\n")[0])
        await harmless(screen)
    for place in PARTS:
        await go(screen, place)
        await harmless(screen)
    await screen.open("servers/evil")
    await expect(screen.heading).to_contain_text(MARKUP)
    await expect(screen.heading).to_contain_text(r"\u202egnp.exe\u200b")


async def test_a_question_shows_exactly_what_is_asked_and_its_life_too(visit: Visit, evil: Site):
    token = await caller(evil)
    _, answer = await call(evil, token, "constructor", text=f"{EVIL} other", __proto__=BIG)
    approval = answer["error"]["details"]["approval_id"]  # type: ignore[index]
    screen = await visit(evil)
    await screen.open(f"approvals/{approval}")
    await harmless(screen)
    shown = screen.page.get_by_label("Arguments", exact=True)
    for words in (MARKUP, r"\u202e", "__proto__", str(BIG)):
        await expect(shown).to_contain_text(words)
    await screen.button("Deny", exact=False).first.click()
    await screen.open("audit")
    await harmless(screen)


async def test_a_tool_with_strange_arguments_can_be_tried(visit: Visit, evil: Site):
    await call(evil, await caller(evil), "strange")
    screen = await visit(evil)
    await screen.open("tools/evil/strange/try")
    for name in ("__proto__", "constructor"):
        field = screen.field(name, exact=False)
        await expect(field).to_have_value("")
        await field.fill(f"typed {name}")
        await expect(field).to_have_value(f"typed {name}")
    await screen.field("big", exact=False).fill(str(BIG))
    await screen.button("Type the arguments as JSON").click()
    typed = json.loads(await screen.field("Arguments").input_value())
    wanted = {"__proto__": "typed __proto__", "constructor": "typed constructor", "big": BIG}
    assert typed == wanted
    await screen.button("Call strange").click()
    await expect(screen.page.get_by_label("Structured result")).to_contain_text(f'"big": {BIG}')
    await harmless(screen)


@pytest.mark.requirement("admin:page:every-digit")
async def test_a_record_comes_back_from_a_form_with_every_digit_and_every_name(
    visit: Visit, evil: Site
):
    before = (await evil.get(f"{ADMIN}/tasks/evil"))["config"]
    assert before["big"] == BIG
    screen = await visit(evil)
    await screen.open("tasks/evil/edit")
    await screen.page.get_by_text("Program and other settings").click()
    settings = screen.field("Other settings (config)")
    await expect(settings).to_have_value(json.dumps(before, indent=2, ensure_ascii=False))
    await screen.field("Name", exact=False).first.fill("plain")
    await screen.button("Review and save").click()
    await screen.dialog("What this changes").get_by_role("button", name="Save").click()
    await screen.says("Saved as revision")
    after = await evil.get(f"{ADMIN}/tasks/evil")
    assert (after["name"], after["config"]) == ("plain", before)


async def test_what_a_server_said_before_it_failed_is_text(visit: Visit, evil: Site):
    screen = await visit(evil)
    for server in ("evil", "broken"):
        await screen.open(f"servers/{server}/test")
        await screen.button("Test").click()
        await expect(screen.button("Test again")).to_be_visible()
        await harmless(screen)


async def test_what_an_import_would_write_is_text(visit: Visit, evil: Site):
    screen = await visit(evil)
    await screen.open("servers/import")
    pasted = json.dumps({"mcpServers": {EVIL: {"command": EVIL, "args": [EVIL]}}})
    await screen.field("Or paste it").fill(pasted)
    await screen.button("Preview").click()
    await expect(screen.button("Preview")).to_have_count(0)
    await harmless(screen)


async def test_what_servers_of_agents_and_their_file_say_is_text(visit: Visit, evil: Site):
    screen = await visit(evil)
    screen.watch.allow("status of 503")
    await screen.open("agents")
    broken = screen.page.get_by_role("listitem").filter(has=screen.link("Edit broken of main"))
    await expect(broken).to_contain_text(MARKUP)
    await expect(broken).to_contain_text(r"\u202egnp.exe\u200b")
    await harmless(screen)
    await screen.button("Reconnect broken of main").click()
    await expect(broken.get_by_role("alert")).to_contain_text(MARKUP)
    await harmless(screen)
    await screen.link("Edit broken of main").click()
    await expect(screen.field("Command")).to_have_value(f"/none/{EVIL}")
    file = evil.data.with_name("agents.toml")
    before = file.read_text(encoding="utf-8")
    file.write_text(f"{before}\n[[agents]]\nid = {json.dumps(EVIL)}\n", encoding="utf-8")
    await until(lambda: problems(evil))
    await screen.open("agents")
    await screen.says("The file as it is now is not in force")
    await harmless(screen)
    file.write_text(before, encoding="utf-8")


async def problems(site: Site) -> list[str]:
    return (await site.get("/api/agents"))["problems"]
