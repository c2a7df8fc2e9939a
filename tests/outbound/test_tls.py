"""TLS: whom the client trusts, what it says of itself, and answers that are cut short."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.outbound.authority import Authority
from tests.outbound.exchange import BOTH_LOOPS, Outcome, client, failed, outcome, request
from tests.outbound.scripted_server import (
    Ending,
    Line,
    answering,
    closing,
    cut,
    dropping,
    resetting,
    scripted,
    turns,
)
from tests.outbound.wire_answers import TEXT, answer, chunked, measured

pytestmark = BOTH_LOOPS


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def here(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


async def asked_of(tls: ssl.SSLContext, trust: ssl.SSLContext, host: str = "127.0.0.1") -> Outcome:
    """Ask a server with a context once; a request that was not delivered was not seen either."""
    async with (
        scripted(answering(measured()), tls=tls) as peer,
        client(tls=trust, resolve=here) as http,
    ):
        got = await outcome(http, request(f"https://{host}:{peer.port}/"))
        assert bool(peer.requests) == (got.status == 200)
    return got


async def test_a_server_whose_certificate_is_trusted_is_asked_again_and_again(authority: Authority):
    async with (
        scripted(answering(measured()), tls=authority.serving()) as peer,
        client(tls=authority.trusting()) as http,
    ):
        for _ in range(5):
            asked = request(f"https://127.0.0.1:{peer.port}/")
            assert await outcome(http, asked) == Outcome(200, TEXT)
        assert len(peer.lines) == 1


@pytest.mark.parametrize(
    ("host", "names", "wanted"),
    [
        ("127.0.0.1", ["127.0.0.1"], ""),
        ("server.test", ["server.test"], ""),
        ("a.server.test", ["*.server.test"], ""),
        ("127.0.0.1", ["127.0.0.2"], "Unconnected: certificate"),
        ("127.0.0.1", ["server.test"], "Unconnected: certificate"),
        ("server.test", ["other.test"], "Unconnected: certificate"),
        ("server.test", ["127.0.0.1"], "Unconnected: certificate"),
        ("a.b.server.test", ["*.server.test"], "Unconnected: certificate"),
    ],
)
async def test_a_certificate_is_good_for_its_hosts_alone(
    authority: Authority, host: str, names: list[str], wanted: str
):
    got = await asked_of(authority.serving(*names), authority.trusting(), host)
    assert got.failure == wanted


async def test_a_certificate_that_has_expired_is_refused(authority: Authority):
    got = await asked_of(authority.serving(expired=True), authority.trusting())
    assert got == failed("Unconnected: certificate")


async def test_a_certificate_of_an_unknown_authority_is_refused(
    authority: Authority, tmp_path: Path
):
    other = Authority(tmp_path, "other")
    assert await asked_of(other.serving(), authority.trusting()) == failed(
        "Unconnected: certificate"
    )


async def test_a_certificate_that_signs_itself_is_refused(authority: Authority, tmp_path: Path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority(tmp_path, "itself").ca)
    assert await asked_of(context, authority.trusting()) == failed("Unconnected: certificate")


async def test_a_server_that_wants_a_certificate_gets_it(authority: Authority):
    trust = authority.trusting(authority.issue("client"))
    assert await asked_of(authority.serving(clients=True), trust) == Outcome(200, TEXT)


async def test_a_server_that_wants_a_certificate_and_gets_none_takes_no_request(
    authority: Authority,
):
    """With TLS 1.3 the client learns of it only after it has sent: so the outcome is unknown."""
    got = await asked_of(authority.serving(clients=True), authority.trusting())
    assert got.failure in ("Unanswered", "Unconnected: tls", "Unconnected: network")
    old = authority.serving(clients=True)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    got = await asked_of(old, authority.trusting())
    assert got.failure in ("Unconnected: tls", "Unconnected: network")


async def test_a_server_of_an_old_version_of_tls_is_refused(authority: Authority):
    old = authority.serving()
    for side in ("minimum_version", "maximum_version"):
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            setattr(old, side, ssl.TLSVersion.TLSv1_1)
    got = await asked_of(old, authority.trusting())
    assert got.failure in ("Unconnected: tls", "Unconnected: network")


async def test_the_name_of_the_server_and_the_protocol_are_sent(authority: Authority):
    names: list[str | None] = []

    def note(_made: object, name: str | None, _context: object) -> None:
        names.append(name)

    async def script(line: Line) -> None:
        await line.request()
        spoken = line.writer.get_extra_info("ssl_object").selected_alpn_protocol()
        await line.say(measured(body=spoken.encode()))

    tls = authority.serving("server.test")
    tls.sni_callback = note
    tls.set_alpn_protocols(["h2", "http/1.1"])
    trust = authority.trusting()
    async with scripted(script, tls=tls) as peer, client(tls=trust, resolve=here) as http:
        got = await outcome(http, request(f"https://server.test:{peer.port}/"))
    assert got == Outcome(200, b"http/1.1")
    assert names == ["server.test"]


# Answers that are cut short

UNTIL_CLOSE = answer("Content-Type: text/plain", body=TEXT)


@pytest.mark.parametrize(
    ("wire", "ending", "wanted"),
    [
        (UNTIL_CLOSE, closing, Outcome(200, TEXT)),
        (UNTIL_CLOSE, dropping, failed("BrokenAnswer")),
        (UNTIL_CLOSE, resetting, failed("BrokenAnswer")),
        (measured(), closing, Outcome(200, TEXT)),
        (measured(), dropping, Outcome(200, TEXT)),
        (measured(), resetting, Outcome(200, TEXT)),
        (chunked(TEXT), dropping, Outcome(200, TEXT)),
        (measured()[:-1], closing, failed("BrokenAnswer")),
        (measured()[:-1], dropping, failed("BrokenAnswer")),
        (chunked(TEXT)[:-2], closing, failed("BrokenAnswer")),
        (b"", closing, failed("Unanswered")),
        (b"", dropping, failed("Unanswered")),
        (b"", resetting, failed("Unanswered")),
    ],
)
async def test_only_what_ends_as_it_said_is_whole(
    authority: Authority, wire: bytes, ending: Ending, wanted: Outcome
):
    """A stranger can end a connection, and not say so in TLS: what he leaves is not an answer."""
    trust = authority.trusting()
    async with (
        scripted(ending(wire), tls=authority.serving()) as peer,
        client(tls=trust) as http,
    ):
        assert await outcome(http, request(f"https://127.0.0.1:{peer.port}/")) == wanted
        assert len(peer.requests) == 1


async def test_pieces_of_an_answer_are_joined_under_tls(authority: Authority):
    pieces = cut(chunked(*[bytes([n]) * 5000 for n in range(50)]), range(0, 250_000, 999))
    async with (
        scripted(answering(*pieces), tls=authority.serving()) as peer,
        client(tls=authority.trusting()) as http,
    ):
        got = await outcome(http, request(f"https://127.0.0.1:{peer.port}/"))
        assert got == Outcome(200, b"".join(bytes([n]) * 5000 for n in range(50)))


@pytest.mark.parametrize("ending", ["properly", "without a word"])
async def test_a_kept_connection_that_has_ended_takes_no_request(authority: Authority, ending: str):
    async def script(line: Line) -> None:
        await line.request()
        await line.say(measured())
        if ending == "properly":
            line.writer.close()
        else:
            line.drop()

    async with (
        scripted(script, tls=authority.serving()) as peer,
        client(tls=authority.trusting()) as http,
    ):
        for count in (1, 2, 3):
            got = await outcome(http, request(f"https://127.0.0.1:{peer.port}/"))
            assert got == Outcome(200, TEXT)
            assert len(peer.lines) == count
            await peer.closed()
            await turns(10)


async def test_a_handshake_that_breaks_off_leaves_nothing_behind(authority: Authority):
    async def script(line: Line) -> None:
        await line.reader.readexactly(10)
        line.reset()

    async with scripted(script) as peer, client(tls=authority.trusting()) as http:
        got = await outcome(http, request(f"https://127.0.0.1:{peer.port}/"))
        assert got.failure in ("Unconnected: network", "Unconnected: tls")
        assert not http.is_open


async def test_a_handshake_that_hangs_is_late(authority: Authority):
    async def script(line: Line) -> None:
        await line.left()

    trust = authority.trusting()
    async with scripted(script) as peer, client(tls=trust, connect_seconds=0.05) as http:
        got = await outcome(http, request(f"https://127.0.0.1:{peer.port}/"))
        assert got == failed("Unconnected: late")
        await peer.closed()
        assert not http.is_open
