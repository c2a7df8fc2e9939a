"""Where a node may connect to: which addresses, by which names, and that no trick of DNS helps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from bascule.errors import LaunchDenied, ServerUnavailable
from bascule.outbound.egress import EgressRules, classify, parse_url
from bascule.outbound.failures import Unconnected
from bascule.outbound.http import HttpClient, HttpOptions, HttpRequest
from bascule.outbound.url import Url

PUBLIC = "93.184.216.34"
ANY = str(ip_address(0))


class Dns:
    """Answers each question with the next of its answers, the last one for ever."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        del port
        self.asked.append(host)
        return list(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])


@pytest.fixture
async def server() -> AsyncIterator[BaseTestServer]:
    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", hello)
    async with TestServer(app, host="127.0.0.1") as server:
        yield server


def denial(rules: EgressRules, url: str, *, insecure: bool = False) -> str:
    with pytest.raises(LaunchDenied) as caught:
        rules.check_url(Url.parse(url), insecure=insecure)
    assert caught.value.reason == "launch_denied"
    return str(caught.value)


def resolved(rules: EgressRules, host: str, *addresses: str) -> list[str]:
    rules.check_addresses(host, addresses)
    return list(addresses)


# Which addresses


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("fc00::1", "private"),
        ("fdff::1", "private"),
        ("fec0::1", "private"),
        ("64:ff9b:1::7f00:1", "private"),
        ("100.64.0.1", "shared"),
        ("100.127.255.255", "shared"),
        ("169.254.0.1", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("169.254.169.254", "metadata"),
        ("192.0.0.192", "metadata"),
        ("100.100.100.200", "metadata"),
        ("fd00:ec2::254", "metadata"),
        (ANY, "unspecified"),
        ("::", "unspecified"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("192.0.2.1", "documentation"),
        ("198.51.100.1", "documentation"),
        ("203.0.113.1", "documentation"),
        ("2001:db8::1", "documentation"),
        ("192.0.0.1", "reserved"),
        ("192.88.99.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("2001::1", "reserved"),
        ("::7f00:1", "reserved"),
        ("100::1", "reserved"),
        ("4000::1", "reserved"),
        # an IPv4 address inside an IPv6 one: mapped, NAT64, translated, 6to4
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "metadata"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("::ffff:0:a00:1", "private"),
        ("2002:7f00:1::", "loopback"),
        ("2002:a00:1::1", "private"),
    ],
)
@pytest.mark.requirement("transport:egress:private")
def test_an_address_that_is_not_public_is_known_for_what_it_is(address: str, kind: str):
    assert classify(ip_address(address)) == kind


@pytest.mark.parametrize(
    "address",
    [
        PUBLIC,
        "172.32.0.1",
        "100.128.0.1",
        "192.0.1.1",
        "2606:4700:4700::1111",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
        "2002:101:101::1",
    ],
)
def test_a_public_address_needs_no_listing(address: str):
    host = f"[{address}]" if ":" in address else address
    EgressRules().check_url(Url.parse(f"https://{host}/mcp"))


@pytest.mark.requirement("transport:egress:private")
@pytest.mark.parametrize(
    ("host", "address", "kind"),
    [
        ("10.1.2.3", "10.1.2.3", "private"),
        ("169.254.169.254", "169.254.169.254", "metadata"),
        ("192.0.0.192", "192.0.0.192", "metadata"),
        ("[fd00:ec2::254]", "fd00:ec2::254", "metadata"),
        ("[fe80::1]", "fe80::1", "link-local"),
        (ANY, ANY, "unspecified"),
    ],
)
def test_a_refusal_names_the_address_its_class_and_the_setting(host: str, address: str, kind: str):
    article = "an" if kind == "unspecified" else "a"
    assert denial(EgressRules(), f"https://{host}/mcp") == (
        f"this node does not connect to {address}: it is {article} {kind} address; "
        f'add "{address}" to [node] egress, or start with --allow-egress {address}'
    )
    EgressRules([address]).check_url(Url.parse(f"https://{host}/mcp"))


@pytest.mark.requirement("transport:egress:hosts")
def test_a_name_that_leads_to_a_private_address_is_refused_by_name_and_address():
    with pytest.raises(LaunchDenied) as caught:
        resolved(EgressRules(), "db.example.com", "10.1.2.3")
    assert str(caught.value) == (
        "this node does not connect to 10.1.2.3, where db.example.com leads: it is a private "
        'address; add "10.1.2.3" to [node] egress, or start with --allow-egress 10.1.2.3'
    )


def test_one_refused_address_among_good_ones_refuses_the_name():
    with pytest.raises(LaunchDenied, match=r"10\.1\.2\.3"):
        resolved(EgressRules(), "api.example.com", PUBLIC, "10.1.2.3")
    assert resolved(EgressRules(), "api.example.com", PUBLIC, "1.1.1.1") == [
        PUBLIC,
        "1.1.1.1",
    ]


# What is listed


@pytest.mark.requirement("transport:egress:hosts")
@pytest.mark.parametrize(
    ("entry", "host", "address"),
    [
        ("10.1.2.3", "db.example.com", "10.1.2.3"),
        ("10.1.0.0/16", "db.example.com", "10.1.2.3"),
        ("10.1.2.9/16", "db.example.com", "10.1.2.3"),
        ("fd12::/16", "db.example.com", "fd12::5"),
        ("[fd12::5]", "db.example.com", "fd12::5"),
        ("10.1.0.0/16", "db.example.com", "::ffff:10.1.2.3"),
        ("db.example.com", "db.example.com", "10.1.2.3"),
        ("DB.Example.com.", "db.example.com", "10.1.2.3"),
        ("db.example.com", "db.example.com.", "10.1.2.3"),
        ("*.corp.example", "db.corp.example", "192.168.4.4"),
        ("*.corp.example", "db.corp.example", "127.0.0.1"),
        ("bücher.example", "xn--bcher-kva.example", "100.64.1.1"),
        ("*", "db.example.com", "10.1.2.3"),
        ("169.254.0.0/16", "metadata.internal", "169.254.169.254"),
    ],
)
def test_what_is_listed_is_reached(entry: str, host: str, address: str):
    assert resolved(EgressRules([entry]), host, address) == [address]


@pytest.mark.parametrize(
    ("entry", "host", "address"),
    [
        ("10.2.0.0/16", "db.example.com", "10.1.2.3"),
        ("db.example.com", "db.example.com.evil.example", "10.1.2.3"),
        ("*.corp.example", "corp.example", "10.1.2.3"),
        # whoever holds a listed name's DNS must not point it at these
        ("*.corp.example", "evil.corp.example", "169.254.169.254"),
        ("*", "evil.example.com", "169.254.169.254"),
        ("*", "evil.example.com", "fe80::1"),
        ("*", "evil.example.com", ANY),
    ],
)
def test_a_listing_opens_no_more_than_it_says(entry: str, host: str, address: str):
    with pytest.raises(LaunchDenied):
        resolved(EgressRules([entry]), host, address)


@pytest.mark.parametrize("entry", ["", "10.*", "10.0.0.0/33", "https://a.example", "a.example:443"])
def test_an_entry_that_is_no_host_and_no_network_is_refused_with_what_to_write(entry: str):
    with pytest.raises(LaunchDenied, match=r"\[node\] egress: .* write them as"):
        EgressRules([entry])


# Loopback


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "http://127.9.9.9/", "http://[::1]/", "https://127.0.0.1/"]
)
def test_loopback_is_reached_by_a_url_that_says_so(url: str):
    EgressRules().check_url(Url.parse(url))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "mcp.localhost"])
def test_localhost_may_lead_to_loopback_and_nowhere_else(host: str):
    EgressRules().check_url(Url.parse(f"http://{host}/"))
    assert resolved(EgressRules(), host, "127.0.0.1", "::1") == ["127.0.0.1", "::1"]
    with pytest.raises(LaunchDenied, match="another machine"):
        resolved(EgressRules(), host, PUBLIC)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"])
def test_a_name_that_leads_to_loopback_is_refused_unless_listed(address: str):
    with pytest.raises(LaunchDenied, match="it is a loopback address"):
        resolved(EgressRules(), "rebind.example.com", address)
    assert resolved(EgressRules(["127.0.0.0/8", "::1"]), "rebind.example.com", address)


@pytest.mark.parametrize("host", ["[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"])
def test_loopback_inside_another_address_is_not_named_by_it(host: str):
    assert "loopback" in denial(EgressRules(), f"https://{host}/")


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0x7f000001", "017700000001"]
)
async def test_odd_ways_to_write_an_address_are_refused(host: str):
    assert "write it as 127.0.0.1" in denial(EgressRules(), f"http://{host}/")
    # and had it passed, the machine's own resolver would have shown what it is
    found = await asyncio.get_running_loop().getaddrinfo(host, 80)
    with pytest.raises(LaunchDenied, match="loopback"):
        EgressRules().check_addresses(host, [str(address[0]) for *_, address in found])


# Plain http


@pytest.mark.requirement("transport:plain-http")
@pytest.mark.parametrize("host", ["api.example.com", PUBLIC, "10.1.2.3"])
def test_plain_http_to_another_machine_needs_the_record_to_say_so(host: str):
    rules = EgressRules(["10.0.0.0/8"])
    assert "insecure = true" in denial(rules, f"http://{host}/mcp")
    rules.check_url(Url.parse(f"http://{host}/mcp"), insecure=True)
    rules.check_url(Url.parse(f"https://{host}/mcp"))


def test_insecure_opens_no_address():
    assert "private" in denial(EgressRules(), "http://10.1.2.3/", insecure=True)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("ftp://a.example/", "is not a URL"),
        ("https://user:hunter2@a.example/", "http.auth"),
        ("https://", "is not a URL"),
        ("https://a.example:99999/", "is not a URL"),
        ("just words", "is not a URL"),
    ],
)
def test_what_is_no_usable_url_is_refused_without_repeating_it(url: str, complaint: str):
    with pytest.raises(ServerUnavailable, match=complaint) as caught:
        parse_url(url, "http.url")
    assert "hunter2" not in str(caught.value)


# The connection itself


# Closed rules


@pytest.mark.requirement("references:closed-egress")
def test_closed_rules_let_nothing_out_and_say_what_to_list():
    closed = EgressRules(closed=True)
    said = denial(closed, "https://api.example.com/mcp")
    assert 'add "api.example.com" to [node] egress' in said
    assert "start with --allow-egress api.example.com" in said
    assert f'add "{PUBLIC}" to [node] egress' in denial(closed, f"https://{PUBLIC}/")
    assert "loopback" in denial(closed, "http://127.0.0.1:8080/")
    with pytest.raises(LaunchDenied, match="loopback"):
        resolved(closed, "localhost", "127.0.0.1")


@pytest.mark.requirement("references:closed-egress")
def test_closed_rules_let_out_what_is_listed():
    named = EgressRules(["*.example.com", "10.1.0.0/16", "127.0.0.1"], closed=True)
    named.check_url(Url.parse("https://api.example.com/"))
    assert resolved(named, "api.example.com", PUBLIC)
    assert resolved(named, "inner.test", "10.1.2.3")
    named.check_url(Url.parse("http://127.0.0.1:8080/"))
    with pytest.raises(LaunchDenied, match=r"other\.test is not listed"):
        resolved(named, "other.test", PUBLIC)
    with pytest.raises(LaunchDenied, match=r"other\.test is not listed"):
        named.check_name("other.test")


@pytest.mark.requirement("references:closed-egress")
def test_a_star_opens_what_is_public_and_nothing_else():
    public = EgressRules(["*"], closed=True)
    public.check_url(Url.parse("https://api.example.com/"))
    assert resolved(public, "api.example.com", PUBLIC)
    with pytest.raises(LaunchDenied, match="private"):
        resolved(public, "inner.test", "10.1.2.3")
    assert "loopback" in denial(public, "http://127.0.0.1:8080/")


@asynccontextmanager
async def client(
    rules: EgressRules, *answers: tuple[str, ...], insecure: bool = False
) -> AsyncGenerator[tuple[HttpClient, Dns]]:
    dns = Dns(*answers)
    options = HttpOptions(connect_seconds=5, egress=rules, insecure=insecure, resolve=dns)
    made = HttpClient(options)
    try:
        yield made, dns
    finally:
        await made.close()


async def fetch(client: HttpClient, url: str, **headers: str) -> bytes:
    answer = await client.send(HttpRequest("GET", Url.parse(url), headers))
    return await answer.read(100)


@pytest.mark.requirement("transport:egress:resolved")
async def test_dns_that_flips_between_check_and_connect_changes_nothing(server: BaseTestServer):
    """The first answer is good, every later one is not: one question is asked, its answer used."""
    flips = ("127.0.0.1",), ("169.254.169.254",)
    async with client(EgressRules(["mcp.example.com"]), *flips, insecure=True) as (http, dns):
        assert await fetch(http, f"http://mcp.example.com:{server.port}/") == b"hello"
        assert dns.asked == ["mcp.example.com"]


@pytest.mark.requirement("transport:egress:resolved")
async def test_every_new_connection_is_checked_anew(server: BaseTestServer):
    flips = ("127.0.0.1",), ("169.254.169.254",)
    url = f"http://mcp.example.com:{server.port}/"
    async with client(EgressRules(["*.example.com"]), *flips, insecure=True) as (http, _):
        assert await fetch(http, url, Connection="close") == b"hello"
        with pytest.raises(LaunchDenied, match="metadata"):
            await fetch(http, url)


async def test_a_client_cannot_be_talked_round_the_check(server: BaseTestServer):
    """Hosts written as addresses never reach a resolver."""
    async with client(EgressRules(), ("127.0.0.1",)) as (http, _):
        with pytest.raises(LaunchDenied, match="private"):
            await fetch(http, "https://10.1.2.3/")
        with pytest.raises(LaunchDenied, match="plain http"):
            await fetch(http, f"http://{PUBLIC}/")
        with pytest.raises(LaunchDenied, match="loopback"):
            await fetch(http, "https://rebind.example.com/")
        assert await fetch(http, str(server.make_url("/"))) == b"hello"


@pytest.mark.parametrize(
    ("answer", "said"), [((), "has no address"), (("elsewhere.example",), "no address")]
)
async def test_a_name_without_an_address_cannot_be_connected_to(answer: tuple[str, ...], said: str):
    async with client(EgressRules(), answer) as (http, _):
        with pytest.raises(Unconnected, match=said) as failed:
            await fetch(http, "https://nowhere.example.com/")
        assert failed.value.why == "name"
