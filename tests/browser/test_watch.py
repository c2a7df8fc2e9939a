"""What must not happen on a page is noticed, and the page's policy is in force while tests look."""

from __future__ import annotations

import pytest

from tests.browser.screen import Screen
from tests.waits import until

PROVOKED = {
    "console.warn('look')": "console warning: look",
    "setTimeout(() => { throw new Error('broken') })": "error: broken",
    "setTimeout(() => alert('boo'))": "dialog: alert boo",
    "fetch('http://127.0.0.2:9/').catch(() => 0)": "policy violated: connect-src",
    "location = 'http://127.0.0.2:9/'": "request elsewhere: GET http://127.0.0.2:9/",
    "document.body.setAttribute('style', 'color: red')": "policy violated: style-src-attr",
    "document.body.innerHTML = '<b>bold</b>'": "policy violated: require-trusted-types-for",
}


@pytest.mark.requirement("admin:page:own-host")
@pytest.mark.parametrize("act", PROVOKED)
async def test_what_must_not_happen_is_complained_of(screen: Screen, act: str):
    await screen.open("servers")
    assert screen.watch.complaints == []
    await screen.run(f"void ({act})" if "=" not in act else f"try {{ {act} }} catch {{}}")
    wanted = PROVOKED[act]
    await until(lambda: any(wanted in one for one in screen.watch.complaints))
    screen.watch.allow("")
