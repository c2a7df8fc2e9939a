"""Approvals: what waits is seen whole, decided on by whoever may, and found again afterwards."""

from __future__ import annotations

import asyncio
import json

import pytest
from playwright.async_api import Locator, Route, expect

from bascule.clock import SYSTEM_CLOCK, rfc3339
from bascule.model.role import Role
from tests.browser.asking import asking
from tests.browser.screen import DESK, PHONE, Screen
from tests.browser.site import Site
from tests.browser.visit import Visit

HOSTILE = 'a\u202eb<img src=x onerror="alert(1)">\u200b'
PAGE = 50


def question(screen: Screen) -> Locator:
    """The question that is open."""
    return screen.page.get_by_role("article")


async def shows(screen: Screen, note: str) -> None:
    await expect(question(screen).get_by_label("Arguments")).to_contain_text(f'"{note}"')


@pytest.mark.requirement("admin:web:approvals")
async def test_several_calls_are_decided_one_after_another_by_keyboard_alone(
    visit: Visit, site: Site
):
    async with asking(site) as one:
        first, second, third = [await one.delete(f"note-{n}") for n in "abc"]
        screen = await visit(site)
        await screen.open("approvals")
        await shows(screen, "note-a")
        await expect(screen.page).to_have_title("(3) Approvals · Bascule")
        await expect(question(screen)).to_contain_text("Expires in 59 min")
        await screen.press(screen.button("Approve"))
        await shows(screen, "note-b")
        await expect(question(screen)).to_be_focused()
        await screen.press(screen.button("Deny…"))
        await expect(screen.field("Why not", exact=False)).to_be_focused()
        await screen.page.keyboard.type("it is needed")
        await screen.page.keyboard.press("Enter")
        await shows(screen, "note-c")
        await expect(question(screen)).to_be_focused()
        await screen.press(screen.button("Approve"))
        await screen.says("Nothing waits for approval")
        await expect(screen.heading).to_be_focused()
        await expect(screen.page).to_have_title("Approvals · Bascule")
        stand = [await one.approval(id) for id in (first, second, third)]
    assert [one["state"] for one in stand] == ["approved", "denied", "approved"]
    assert stand[1]["decided"]["reason"] == "it is needed"


@pytest.mark.requirement("admin:web:live")
async def test_what_is_asked_while_the_page_is_open_appears_by_itself(visit: Visit, site: Site):
    screen = await visit(site)
    await screen.open("approvals")
    await screen.says("Nothing waits for approval")
    async with asking(site) as one:
        id = await one.delete("late")
        await shows(screen, "late")
        await one.decide(id, "deny", "too late")
        await expect(question(screen)).to_contain_text("Denied")
        await expect(question(screen)).to_contain_text("too late")
        await expect(screen.button("Approve")).to_have_count(0)


@pytest.mark.requirement("admin:page:only-text")
async def test_nothing_in_arguments_deceives_whoever_decides(visit: Visit, site: Site):
    async with asking(site) as one:
        await one.delete(HOSTILE)
        screen = await visit(site, size=PHONE)
        await screen.open("approvals")
        arguments = screen.page.get_by_label("Arguments")
        await expect(arguments).to_contain_text(r"a\u202eb<img src=x onerror=\"alert(1)\">\u200b")
        await screen.page.get_by_text("The tool, in its server").click()
        await expect(screen.page.get_by_label("Definition of the tool")).to_contain_text(
            '"inputSchema"'
        )
        await screen.fits()
        await screen.axe("light")


async def test_the_node_at_which_a_call_waits_is_named(visit: Visit, site: Site):
    async def elsewhere(route: Route) -> None:
        answer = await route.fetch()
        body = {**await answer.json(), "node": "east"}
        await route.fulfill(response=answer, body=json.dumps(body))

    async with asking(site) as one:
        id = await one.delete("far away")
        screen = await visit(site)
        await screen.open(f"approvals/{id}")
        await screen.says("agent, ")
        await screen.page.route(f"**/admin/api/approvals/{id}", elsewhere)
        await screen.page.reload()
        await screen.says("agent at node east, ")


async def test_what_cannot_be_shown_whole_can_be_denied_and_not_approved(visit: Visit, site: Site):
    async with asking(site) as one:
        id = await one.delete("x" * 1_000_000)
        screen = await visit(site)
        await screen.open(f"approvals/{id}")
        await screen.says("This cannot be approved, only denied: the text of the arguments")
        await expect(screen.button("Approve")).to_have_count(0)
        await screen.fits()
        await screen.button("Deny…").click()
        await screen.button("Deny").click()
        await screen.says("what was asked is not kept any longer")
        assert (await one.approval(id))["state"] == "denied"


@pytest.mark.requirement("admin:approvals:why-not")
async def test_whoever_may_not_decide_reads_why_and_has_no_button(visit: Visit, site: Site):
    async with asking(site, name="page of admin") as one:
        await one.delete("mine")
        reasons: dict[Role, str] = {
            "viewer": "the role viewer looks, and does not decide",
            "admin": "a token named 'page of admin' asked, and one of its name does not decide",
        }
        for role, why in reasons.items():
            screen = await visit(site, role)
            await screen.open("approvals")
            await screen.says(f"You cannot decide on this: {why}.")
            for name in ("Approve", "Deny…"):
                await expect(screen.button(name)).to_have_count(0)
            await question(screen).get_by_label("Arguments").focus()
            await screen.page.keyboard.press("a")
            await screen.axe("dark")


@pytest.mark.requirement("admin:approvals:changed")
async def test_a_question_that_changed_meanwhile_is_shown_again_and_not_decided(
    visit: Visit, site: Site
):
    decided: list[str] = []

    async def older(route: Route) -> None:
        answer = await route.fetch()
        body = await answer.json()
        await route.fulfill(
            response=answer, body=json.dumps(body if decided else {**body, "digest": "0" * 64})
        )

    async def deciding(route: Route) -> None:
        decided.append(route.request.url)
        await route.continue_()

    async with asking(site) as one:
        id = await one.delete("moving")
        screen = await visit(site)
        screen.watch.allow("status of 409")
        await screen.page.route(f"**/admin/api/approvals/{id}", older)
        await screen.page.route(f"**/admin/api/approvals/{id}/decision", deciding)
        await screen.open(f"approvals/{id}")
        await screen.button("Approve").click()
        await screen.says("The question changed while you looked at it, and nothing was decided.")
        assert (await one.approval(id))["state"] == "pending"
        await screen.button("Approve").click()
        await screen.says("The call in the audit")
        await screen.page.unroute_all(behavior="wait")
        assert (await one.approval(id))["state"] == "approved"


async def test_a_key_decides_only_on_what_was_there_to_be_seen(visit: Visit, site: Site):
    async with asking(site) as one:
        first, second = await one.delete("first"), await one.delete("second")
        screen = await visit(site)
        await screen.page.clock.install()
        await screen.page.clock.pause_at(rfc3339(SYSTEM_CLOCK.now() + 60) or "")
        await screen.open("approvals")
        await shows(screen, "first")
        await question(screen).focus()
        await screen.page.keyboard.press("a")
        await screen.page.keyboard.press("d")
        await expect(screen.button("Deny…")).to_be_visible()
        await screen.page.clock.fast_forward(1_000)
        await screen.page.keyboard.press("a")
        await shows(screen, "second")
        await screen.page.keyboard.press("a")
        assert (await one.approval(second))["state"] == "pending"
        await screen.page.clock.fast_forward(1_000)
        await screen.page.keyboard.press("d")
        await expect(screen.field("Why not", exact=False)).to_be_focused()
        assert (await one.approval(first))["state"] == "approved"


async def test_a_question_counts_down_to_its_end(visit: Visit, site: Site):
    async with asking(site) as one:
        id = await one.delete("short")
        screen = await visit(site)
        await screen.page.clock.install()
        await screen.open(f"approvals/{id}")
        await screen.says("Expires in 59 min")
        await screen.page.clock.fast_forward("59:40")
        await expect(screen.page.get_by_text("Expires in").first).to_contain_text(" s")
        await screen.page.clock.fast_forward("01:00")
        await screen.says("Time is up")


async def test_what_was_decided_is_found_by_filters_page_by_page(visit: Visit, site: Site):
    async with asking(site, name="busy") as one:
        many = await asyncio.gather(*(one.delete(f"many-{n}") for n in range(PAGE + 1)))
        await asyncio.gather(*(one.decide(id, "approve") for id in many))
        refused = await one.delete("refused")
        await one.decide(refused, "deny", "not this one")
    screen = await visit(site)
    await screen.open("approvals/decided")
    await screen.says(f"{PAGE} approvals so far")
    await screen.button("Show older ones").click()
    await expect(screen.row("busy")).to_have_count(PAGE + 2)
    await screen.field("Outcome").select_option("Denied")
    await expect(screen.row("not this one")).to_have_count(1)
    await screen.field("Tool").fill("no_such_tool")
    await screen.page.keyboard.press("Enter")
    await screen.says("None of the last 7 days matches.")
    await screen.link("Show all").click()
    await screen.field("Outcome").select_option("Denied")
    await screen.resize(PHONE)
    await screen.fits()
    await screen.axe("dark")
    await screen.resize(DESK)
    await screen.axe("light")
    await screen.row("not this one").get_by_role("link").click()
    await screen.says(refused)
    await screen.says("not this one")
