"""URLs: what is one, and what is sent of it."""

from __future__ import annotations

import pytest

from bascule.outbound.url import Url


@pytest.mark.parametrize(
    ("text", "origin", "target"),
    [
        ("https://a.example", "https://a.example", "/"),
        ("https://A.Example:443/x?y=1", "https://a.example", "/x?y=1"),
        ("http://a.example:80/", "http://a.example", "/"),
        ("http://a.example:8080/mcp", "http://a.example:8080", "/mcp"),
        ("http://[::1]:7070/mcp", "http://[::1]:7070", "/mcp"),
        ("https://b\u00fccher.example/", "https://xn--bcher-kva.example", "/"),
        ("https://a.example/\u00e4%20%zz%2F", "https://a.example", "/%C3%A4%20%25zz%2F"),
        ("https://a.example/?q=\u00e4&r=a/b?c", "https://a.example", "/?q=%C3%A4&r=a/b?c"),
        ("https://a.example/x#part", "https://a.example", "/x"),
        ("https://user:hunter2@a.example/", "https://a.example", "/"),
    ],
)
def test_a_url_has_an_origin_and_what_is_asked_for_there(text: str, origin: str, target: str):
    url = Url.parse(text)
    assert (url.origin, url.target) == (origin, target)
    assert url == Url.parse(url.text)
    assert url.has_user == ("@" in text)
    assert "hunter2" not in f"{url} {url!r}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/x",
        "just words",
        "https://",
        "https:///x",
        "https://[",
        "https://[::1",
        "ftp://a.example/",
        "https://a.example:99999/",
        "https://a.example:0/",
        "https://a.example:x/",
        "https://a b.example/",
        "https://a.example/x y",
        "https://a.example/\r\nHost: b",
        "https://a.example\\@b.example/",
        "https://a..example/",
        "https://a%2eexample/",
        "https://a.example\u2024/\x00",
    ],
)
def test_what_could_be_read_in_two_ways_is_no_url(text: str):
    with pytest.raises(ValueError):  # noqa: PT011 - the words are the caller's
        Url.parse(text)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("https://a.example", "http://a.example"),
        ("https://a.example", "https://a.example:444"),
        ("https://a.example", "https://b.a.example"),
        ("https://a.example", "https://a.example@evil.example/"),
    ],
)
def test_another_scheme_host_or_port_is_another_origin(a: str, b: str):
    assert Url.parse(a).origin != Url.parse(b).origin


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("/y", "https://a.example/y"),
        ("z?q=1", "https://a.example/x/z?q=1"),
        ("../z", "https://a.example/z"),
        ("//b.example/", "https://b.example/"),
        ("http://c.example", "http://c.example/"),
        (" /y#part ", "https://a.example/y"),
    ],
)
def test_a_reference_leads_from_where_it_stands(reference: str, found: str):
    assert Url.parse("https://a.example/x/y?old=1").join(reference).text == found


def test_what_is_below_keeps_the_query_and_parameters_are_added_to_it():
    base = Url.parse("https://a.example/v1/?key=1")
    assert base.below("chat", "completions").text == "https://a.example/v1/chat/completions?key=1"
    assert base.asking({"q": "a b&c"}).text == "https://a.example/v1/?key=1&q=a%20b%26c"
    assert base.asking({}) == base
