"""The admin page's files over HTTP: the built ones and no other, under a policy of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bascule.asgi.guard import GuardedApp
from bascule.control.web.page import page_routes
from tests.asgi.caller import ask, make_tokens

INDEX = b"<!doctype html><script type=module src=page.js></script>"


@pytest.fixture
def app(tmp_path: Path) -> GuardedApp:
    folder = tmp_path / "page"
    (folder / "deep").mkdir(parents=True)
    (folder / "index.html").write_bytes(INDEX)
    (folder / "page.js").write_bytes(b"export {}")
    (folder / "page.css").write_bytes(b"a{}")
    (folder / "icon.svg").write_bytes(b"<svg/>")
    (folder / "page.js.map").write_bytes(b"{}")
    (folder / "deep" / "x.js").write_bytes(b"0")
    (tmp_path / "outside.js").write_bytes(b"0")
    return GuardedApp(page_routes(folder), make_tokens())


@pytest.mark.requirement("admin:page:served")
@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/admin/", "text/html; charset=utf-8"),
        ("/admin/index.html", "text/html; charset=utf-8"),
        ("/admin/page.js", "text/javascript; charset=utf-8"),
        ("/admin/page.css", "text/css; charset=utf-8"),
        ("/admin/icon.svg", "image/svg+xml"),
    ],
)
async def test_a_file_comes_with_its_type_and_only_once(
    app: GuardedApp, path: str, media_type: str
):
    first = await ask(app, "GET", path)
    assert (first.status, first.header("content-type")) == (200, media_type)
    assert first.header("cache-control") == "no-cache"
    etag = first.header("etag") or ""
    again = await ask(app, "GET", path, {"If-None-Match": etag})
    assert (again.status, again.body, again.header("etag")) == (304, b"", etag)
    assert again.header("content-security-policy") == first.header("content-security-policy")


@pytest.mark.requirement("admin:page:policy")
async def test_the_page_may_load_and_do_nothing_that_is_not_its_own(app: GuardedApp):
    page = await ask(app, "GET", "/admin/")
    assert page.header("content-security-policy") == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types bascule svelte-trusted-html"
    )
    assert page.header("x-content-type-options") == "nosniff"
    assert page.header("referrer-policy") == "no-referrer"
    assert page.header("cross-origin-opener-policy") == "same-origin"
    assert page.header("cross-origin-resource-policy") == "same-origin"
    assert "camera=()" in (page.header("permissions-policy") or "")
    assert page.header("set-cookie") is None


@pytest.mark.requirement("admin:page:served")
@pytest.mark.parametrize("path", ["/", "/admin"])
async def test_short_addresses_lead_to_the_page(app: GuardedApp, path: str):
    led = await ask(app, "GET", path)
    assert (led.status, led.header("location")) == (307, "/admin/")


@pytest.mark.requirement("admin:page:served")
@pytest.mark.parametrize(
    "name",
    [
        *("api", "x.js", "page.js.map", "deep", "deep/x.js", "..", "../outside.js", "."),
        *("%2e%2e%2foutside.js", "..\\outside.js", "page.js\0", "/etc/passwd", "PAGE.JS"),
    ],
)
async def test_there_is_nothing_but_the_files_of_the_page(app: GuardedApp, name: str):
    missing = await ask(app, "GET", f"/admin/{name}")
    assert (missing.status, missing.code) == (404, "not_found")


async def test_the_files_are_for_reading_and_for_names_of_this_server(app: GuardedApp):
    assert (await ask(app, "POST", "/admin/")).status == 405
    assert (await ask(app, "HEAD", "/admin/")).status == 200
    other = await ask(app, "GET", "/admin/", {"Host": "rebound.example"})
    assert (other.status, other.code) == (421, "host_refused")


@pytest.mark.requirement("admin:page:policy")
async def test_every_answer_says_what_it_may_do(app: GuardedApp, tmp_path: Path):
    page = await ask(app, "GET", "/admin/")
    answers = [
        await ask(app, "GET", "/admin/", {"If-None-Match": page.header("etag") or ""}),
        await ask(app, "GET", "/admin/none.js"),
        await ask(app, "GET", "/", {"Host": "rebound.example"}),
        await ask(app, "HEAD", "/admin/page.js", {"Range": "bytes=0-1"}),
        await ask(GuardedApp(page_routes(tmp_path / "none"), make_tokens()), "GET", "/admin/"),
    ]
    assert [one.status for one in answers] == [304, 404, 421, 200, 503]
    for one in answers:
        policy = one.header("content-security-policy") or ""
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert one.header("x-content-type-options") == "nosniff"


async def test_another_site_may_lead_here_and_load_nothing(app: GuardedApp):
    site = {"Sec-Fetch-Site": "cross-site"}
    assert (await ask(app, "GET", "/admin/", {**site, "Sec-Fetch-Mode": "navigate"})).status == 200
    loaded = await ask(app, "GET", "/admin/page.js", {**site, "Sec-Fetch-Mode": "no-cors"})
    assert (loaded.status, loaded.code) == (403, "origin_refused")


@pytest.mark.requirement("admin:page:served")
async def test_a_checkout_without_the_page_says_how_to_build_it(tmp_path: Path):
    app = GuardedApp(page_routes(tmp_path / "none"), make_tokens())
    said = await ask(app, "GET", "/admin/")
    assert (said.status, said.header("content-type")) == (503, "text/plain; charset=utf-8")
    assert said.body == b"The admin page is not built: run `make web`, then start Bascule again.\n"
    assert (await ask(app, "GET", "/admin/page.js")).status == 404
