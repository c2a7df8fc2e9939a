"""The playground: a chat with the tools of a task, whose calls are seen and decided in place."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from bascule.testing.upstream import ScriptedUpstream, calls, fails, says
from bascule.wire.api.addresses import ADMIN, APPROVALS
from tests.browser.asking import asker, asking
from tests.browser.screen import PHONE, Screen
from tests.browser.site import Site, serving
from tests.browser.visit import Visit

DELETE = 'call notes.delete_note with {"name": "%s"}'
HOSTILE = '<img src=x onerror="alert(1)">\u202e\u200bgnp.exe'
BACKENDS = f"{ADMIN}/backends"


@pytest.fixture(scope="module")
async def parking_site(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    """A process with the demo that parks a turn as soon as somebody has to be asked."""
    folder = tmp_path_factory.mktemp("parking")
    config = folder / "bascule.toml"
    config.write_text("[chat]\napproval_wait_seconds = 0\n", encoding="utf-8")
    async with serving(folder / "data", "--config", str(config)) as site:
        yield site


async def say(screen: Screen, text: str) -> None:
    message = screen.field("Message")
    await expect(screen.field("Model")).to_be_enabled()
    await message.fill(text)
    await message.press("Enter")


@asynccontextmanager
async def known(site: Site, person: str) -> AsyncGenerator[None]:
    """Let the site know a person while the block lasts."""
    users = f"{ADMIN}/users"
    status, answer = await site.ask("POST", users, token=site.admin, body={"user_id": person})
    assert status == 201, answer
    try:
        yield
    finally:
        await site.ask("DELETE", f"{users}/{person}", token=site.admin)


@asynccontextmanager
async def scripted(site: Site, name: str) -> AsyncGenerator[ScriptedUpstream]:
    """Give the site a backend and a model of this name while the block lasts."""
    async with ScriptedUpstream(models=(name,)) as model:
        record = {"name": name, "base_url": model.url, "models": [name]}
        status, answer = await site.ask("POST", BACKENDS, token=site.admin, body=record)
        assert status == 201, answer
        try:
            yield model
        finally:
            await site.ask("DELETE", f"{BACKENDS}/{name}", token=site.admin)


def call(screen: Screen, name: str) -> Locator:
    """A call of the conversation, by its tool."""
    named = screen.page.locator("summary").filter(has_text=name)
    return screen.page.get_by_role("log").locator("details").filter(has=named)


async def pending(site: Site) -> list[str]:
    _, found = await site.ask("GET", f"{APPROVALS}?state=pending", token=site.admin)
    return [one["id"] for one in found["approvals"]]


@pytest.mark.requirement("admin:web:playground")
async def test_an_answer_shows_its_calls_with_arguments_result_and_decision(screen: Screen):
    await screen.open("playground")
    await screen.axe("light")
    await say(screen, 'call notes.list_notes then call notes.read_note with {"name": "welcome"}')
    await screen.says("mcp__notes__read_note said")
    await screen.says("Turn 2 of the model")
    read = call(screen, "read_note")
    await expect(read).to_contain_text("Answered")
    await expect(read).to_contain_text(" ms")
    await screen.press(read.locator("summary"))
    await expect(read.get_by_label("Arguments of read_note")).to_contain_text('"welcome"')
    await expect(read.get_by_label("Result of read_note")).to_contain_text("memory of the demo")
    await expect(read).to_contain_text("allowed")
    totals = screen.page.get_by_label("Totals")
    for words in ("Calls2", "Model turns3", "Budgets hit0", "Tokens"):
        await expect(totals).to_contain_text(words)
    await screen.resize(PHONE)
    await screen.fits()
    await screen.axe()


async def test_a_conversation_stays_while_the_page_is_open_and_begins_again_when_asked(
    screen: Screen,
):
    await screen.open("playground")
    await screen.button("what can you do").click()
    await screen.says("I am a rehearsal")
    await screen.run("location.hash = '#/approvals'")
    await screen.says("Nothing waits for approval")
    await screen.run("location.hash = '#/playground'")
    await screen.says("I am a rehearsal")
    await screen.button("Start again").click()
    await screen.says_not("I am a rehearsal")
    await expect(screen.field("Message")).to_be_focused()


async def listed(site: Site) -> list[Any]:
    """Return the tokens that the page made for its calls."""
    tokens = (await site.get("/admin/api/tokens"))["tokens"]
    return [one for one in tokens if one["name"] == "web page"]


async def test_whoever_signs_in_next_does_not_see_the_conversation(screen: Screen):
    before = {one["id"] for one in await listed(screen.site)}
    await screen.open("playground?ask=what can you do")
    await expect(screen.field("Message")).to_have_value("what can you do")
    await say(screen, "what can you do")
    await screen.says("I am a rehearsal")
    made = {one["id"] for one in await listed(screen.site)} - before
    assert made
    await screen.button("Sign out").click()
    await screen.says("Sign in with a link")
    assert not made & {one["id"] for one in await listed(screen.site)}, "its tokens ended with it"
    async with known(screen.site, "ada"):
        code = await screen.site.code("admin", person="ada")
        await screen.run(f"location.hash = '#code={code}'")
        await screen.button("Continue as admin").click()
        await screen.run("location.hash = '#/playground'")
        await expect(screen.field("Model")).to_be_enabled()
        await screen.says_not("I am a rehearsal")


async def test_a_call_that_waits_is_approved_in_place_and_the_answer_goes_on(
    visit: Visit, site: Site
):
    one = await asker(site)
    await one.call("write_note", name="unwanted", text="of no use")
    screen = await visit(site)
    await screen.open("playground")
    await say(screen, DELETE % "unwanted")
    await expect(call(screen, "delete_note")).to_contain_text("Waits for approval")
    await screen.says("Expires in 59 min")
    await screen.axe("dark")
    await screen.button("Approve").click()
    await screen.says('mcp__notes__delete_note said: {"name":"unwanted","deleted":true}')
    await expect(call(screen, "delete_note")).to_contain_text("approved by page of admin")
    assert "unwanted" not in str((await one.call("list_notes"))[1])


async def test_stopping_an_answer_takes_its_question_back(visit: Visit, site: Site):
    screen = await visit(site)
    await screen.open("playground")
    await say(screen, DELETE % "welcome")
    await screen.says("Waits for approval")
    assert len(await pending(site)) == 1
    await screen.press(screen.button("Stop"))
    await screen.says("Stopped. Calls that had left may have been carried out.")
    await expect(screen.button("Approve")).to_have_count(0)
    await expect(screen.page).to_have_title("Playground · Bascule")
    assert await pending(site) == []


@pytest.mark.requirement("admin:playground:parked")
async def test_a_parked_turn_goes_on_by_itself_once_somebody_has_approved_it(
    visit: Visit, parking_site: Site
):
    async with asking(parking_site) as one:
        screen = await visit(parking_site)
        await screen.open("playground")
        await say(screen, f"call notes.list_notes and {DELETE % 'shopping'}")
        await screen.says("This turn is kept until its call is decided on")
        await expect(screen.button("Send")).to_be_disabled()
        await screen.axe("light")
        [id] = await pending(parking_site)
        await one.decide(id, "approve")
        await screen.says('mcp__notes__delete_note said: {"name":"shopping","deleted":true}')
        await expect(call(screen, "delete_note")).to_contain_text("Answered")
        await expect(call(screen, "list_notes")).to_have_count(1)
        await screen.says_not("This turn is kept")


@pytest.mark.requirement("admin:playground:parked")
async def test_a_parked_call_is_denied_in_place_by_keyboard_and_the_model_is_told(
    visit: Visit, parking_site: Site
):
    screen = await visit(parking_site)
    await screen.open("playground")
    await say(screen, DELETE % "welcome")
    await screen.says("This turn is kept")
    await screen.press(screen.button("Deny…"))
    await screen.page.keyboard.type("keep it")
    await screen.page.keyboard.press("Enter")
    await screen.says("mcp__notes__delete_note said")
    refused = call(screen, "delete_note")
    await expect(refused).to_contain_text("denied by page of admin")
    await screen.press(refused.locator("summary"))
    await expect(refused.get_by_label("Result of delete_note")).to_contain_text(
        "mcp_approval_denied"
    )
    await expect(refused).to_contain_text("denied by page of admin: keep it")


@pytest.mark.requirement("admin:page:only-text")
async def test_hostile_arguments_results_and_answers_are_text_that_is_cut(visit: Visit, site: Site):
    one = await asker(site)
    await one.call("write_note", name=HOSTILE, text=HOSTILE)
    arguments = json.dumps({"name": HOSTILE}, ensure_ascii=False)
    async with scripted(site, "hostile") as model:
        model.add(calls(("mcp__notes__read_note", arguments)), says(HOSTILE + "y" * 1_000_000))
        screen = await visit(site, size=PHONE)
        await screen.open("playground")
        await screen.field("Model").select_option("hostile")
        await say(screen, "go on")
        await screen.says(r'<img src=x onerror="alert(1)">\u202e\u200bgnp.exe')
        await screen.says("show 980,")
        read = call(screen, "read_note")
        await read.locator("summary").click()
        shown = r"<img src=x onerror=\"alert(1)\">"
        given = read.get_by_label("Arguments of read_note")
        await expect(given).to_contain_text(shown + r"\u202e\u200bgnp.exe")
        await expect(read.get_by_label("Result of read_note")).to_contain_text(shown)
        await screen.fits()
        await screen.axe("light")
    await one.remove(HOSTILE)


async def test_a_backend_that_fails_is_named_with_what_to_do(visit: Visit, site: Site):
    async with scripted(site, "broken") as model:
        model.add(fails(503, "too busy"), says("well again"))
        screen = await visit(site)
        screen.watch.allow("status of 503")
        await screen.open("playground")
        await screen.field("Model").select_option("broken")
        await say(screen, "hello")
        await screen.says("backend broken: too busy")
        await screen.says("Look whether the backend runs, and at its address and key.")
        await screen.axe("light")
        await screen.button("Try again").click()
        await screen.says("well again")
        await screen.says_not("too busy")


async def test_without_a_task_the_page_says_where_to_make_one(visit: Visit, empty_site: Site):
    screen = await visit(empty_site)
    await screen.open("playground")
    await screen.says("There is no task yet")
    await screen.link("Go to the tasks").click()
    await expect(screen.page).to_have_title("Tasks · Bascule")
