"""The description of the API that the process serves: static, open, complete, and of one host."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bascule.asgi.guard import GuardedApp
from bascule.asgi.reference import DOCUMENT, PAGE, reference_routes
from checks import api_page
from tests.asgi.caller import Answer, ask, make_tokens
from tests.control.api.contract import described, refuse_undescribed


async def given(path: str) -> Answer:
    """Ask without a token; the answer must be one that the description promises."""
    routes = reference_routes()
    answer = await ask(GuardedApp(routes, make_tokens()), "GET", path)
    refuse_undescribed(routes, "GET", path, answer)
    return answer


async def test_anybody_is_given_the_document_that_was_generated():
    answer = await given("/openapi.json")
    assert (answer.status, answer.body) == (200, DOCUMENT.read_bytes())
    assert answer.header("content-type") == "application/json"
    assert answer.json["openapi"].startswith("3.1")


async def test_anybody_is_given_the_page_that_was_generated():
    answer = await given("/docs")
    assert (answer.status, answer.body) == (200, PAGE.read_bytes())
    assert answer.header("content-type") == "text/html; charset=utf-8"


def test_the_committed_page_is_what_the_source_gives():
    assert PAGE.read_text(encoding="utf-8") == api_page.render()


@pytest.mark.parametrize("path", [DOCUMENT, PAGE], ids=["document", "page"])
def test_no_other_host_is_named(path: Path):
    assert not re.search(r"(?:[a-z]+:)?//[a-z0-9]", path.read_text(encoding="utf-8"))


def test_the_page_loads_nothing_and_runs_nothing():
    page = _Page()
    page.feed(PAGE.read_text(encoding="utf-8"))
    assert not page.tags & {"script", "style", "link", "img", "iframe", "object", "form", "base"}
    assert not {name for name in page.attributes if name.startswith(("on", "src", "style"))}
    assert page.links
    for link in page.links:
        assert link == "openapi.json" or link.removeprefix("#") in page.ids


def test_the_page_has_every_route_and_every_body():
    page = _Page()
    page.feed(PAGE.read_text(encoding="utf-8"))
    operations = {
        operation["operationId"]
        for methods in described()["paths"].values()
        for operation in methods.values()
    }
    assert page.ids == operations | set(described()["components"]["schemas"])


class _Page(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.add(value or "")
            elif name == "href":
                self.links.add(value or "")
