"""Which proxy a request goes through."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bascule.errors import ServerUnavailable
from bascule.outbound.proxies import parse_proxy, proxy_for
from bascule.outbound.rules import NodeRules
from bascule.outbound.url import Url

PROXY = "http://proxy.example:3128"
SET: Mapping[str, str] = {"HTTPS_PROXY": PROXY, "HTTP_PROXY": "other.example:8080"}


def origin(
    url: str, proxy: str | None = "environment", environ: Mapping[str, str] = SET
) -> str | None:
    found = proxy_for(Url.parse(url), NodeRules(proxy=proxy), environ)
    return None if found is None else found.url.origin


def test_without_the_rule_the_environment_does_not_count():
    assert origin("https://a.example/", None) is None


def test_a_named_proxy_serves_every_url_but_this_machine():
    assert origin("https://a.example/", PROXY) == PROXY
    assert origin("http://a.example/", PROXY) == PROXY
    for here in ("http://127.0.0.1:7070/", "http://localhost/", "http://[::1]/"):
        assert origin(here, PROXY) is None


def test_the_environment_names_one_proxy_for_each_scheme_in_either_case():
    assert origin("https://a.example/") == PROXY
    assert origin("http://a.example/") == "http://other.example:8080"
    assert origin("https://a.example/", environ={"https_proxy": PROXY}) == PROXY
    assert origin("http://a.example/", environ={"HTTPS_PROXY": PROXY}) is None


@pytest.mark.parametrize(
    ("spared", "url", "direct"),
    [
        ("*", "https://a.example/", True),
        ("a.example", "https://a.example/", True),
        ("a.example", "https://b.a.example/", True),
        (".a.example", "https://b.a.example/", True),
        ("*.a.example", "https://b.a.example/", True),
        ("x.example, A.EXAMPLE", "https://a.example/", True),
        ("a.example", "https://nota.example/", False),
        ("a.example:443", "https://a.example/", True),
        ("a.example:444", "https://a.example/", False),
        ("10.0.0.0/8", "https://10.1.2.3/", True),
        ("10.1.2.3", "https://10.1.2.3/", True),
        ("10.0.0.0/8", "https://11.1.2.3/", False),
        ("fd00::/8", "https://[fd00::1]/", True),
        ("", "https://a.example/", False),
        (",", "https://a.example/", False),
    ],
)
def test_no_proxy_spares_names_what_is_below_them_and_networks(spared: str, url: str, direct: bool):
    found = origin(url, environ={**SET, "NO_PROXY": spared})
    assert (found is None) is direct


def test_the_password_of_a_proxy_is_for_the_proxy_alone():
    found = parse_proxy("http://ann:p%40ss@proxy.example:3128", "HTTPS_PROXY")
    assert found.authorization == "Basic YW5uOnBAc3M="
    assert "p%40ss" not in found.url.text


@pytest.mark.parametrize("text", ["socks5://a:1", "https://a:1", "http://:1", "http://a:x", "a b"])
def test_what_is_no_proxy_is_refused_without_repeating_it(text: str):
    with pytest.raises(ServerUnavailable, match="HTTPS_PROXY: is not a proxy") as refused:
        parse_proxy(text, "HTTPS_PROXY")
    assert text not in str(refused.value)
