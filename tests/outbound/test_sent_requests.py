"""Requests as they stand on the wire: one reading, and nothing that a value could add to it."""

from __future__ import annotations

import pytest

from tests.outbound.exchange import BOTH_LOOPS, Outcome, client, failed, outcome, request
from tests.outbound.scripted_server import ScriptedPeer, answering, scripted
from tests.outbound.wire_answers import measured

pytestmark = BOTH_LOOPS


async def seen(
    method: str = "POST", headers: dict[str, str] | None = None, body: bytes | None = b"{}"
) -> tuple[list[bytes], dict[bytes, bytes], bytes]:
    """Send one request, and return its first line in words, its headers and its body."""
    async with scripted(answering(measured(body=b"ok"))) as peer, client() as http:
        address = f"http://127.0.0.1:{peer.port}/path?q=a%20b"
        asked = request(address, method=method, headers=headers, body=body)
        assert await outcome(http, asked) == Outcome(200, b"ok")
        return parted(peer)


def parted(peer: ScriptedPeer) -> tuple[list[bytes], dict[bytes, bytes], bytes]:
    head, _, body = peer.requests[0].partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    headers = [line.split(b": ", 1) for line in lines]
    names = {name.lower(): value for name, value in headers}
    assert len(names) == len(headers), "one of them twice"
    return first.split(b" "), names, body


async def test_a_request_has_one_length_and_names_its_host():
    first, headers, body = await seen(body=b"four")
    assert first == [b"POST", b"/path?q=a%20b", b"HTTP/1.1"]
    assert headers[b"content-length"] == b"4"
    assert headers[b"host"].startswith(b"127.0.0.1:")
    assert headers[b"user-agent"].startswith(b"bascule/")
    assert b"transfer-encoding" not in headers
    assert b"accept-encoding" not in headers
    assert body == b"four"


async def test_a_post_of_nothing_says_so_and_a_get_says_nothing():
    _, headers, _ = await seen(body=None)
    assert headers[b"content-length"] == b"0"
    first, headers, _ = await seen(method="GET")
    assert first[0] == b"GET"
    assert b"content-length" not in headers


async def test_headers_are_sent_as_they_are_given():
    _, headers, _ = await seen(headers={"X-One": "a\tb", "Accept": "", "X-Two": "Grüße"})
    assert headers[b"x-one"] == b"a\tb"
    assert headers[b"accept"] == b""
    assert headers[b"x-two"] == "Grüße".encode()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", "a\r\nEvil: yes"),
        ("X", "a\nb"),
        ("X", "a\rb"),
        ("X", "a\0b"),
        ("X", "a\x7fb"),
        ("X", "half a pair: \ud800"),
        ("X\r\nEvil", "yes"),
        ("X: y", "z"),
        ("X Y", "z"),
        ("", "z"),
        ("Grüße", "z"),
        ("Content-Length", "0"),
        ("transfer-encoding", "chunked"),
        ("Expect", "100-continue"),
    ],
)
async def test_a_header_that_would_make_another_request_of_it_is_not_sent(name: str, value: str):
    async with scripted(answering(measured())) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/", headers={name: value})
        assert await outcome(http, asked) == failed("NotDelivered")
        assert not peer.lines


async def test_a_connection_that_is_not_to_be_kept_is_not():
    async with scripted(answering(measured(body=b"ok"))) as peer, client() as http:
        asked = request(f"http://127.0.0.1:{peer.port}/", headers={"Connection": "close"})
        for _ in range(2):
            assert await outcome(http, asked) == Outcome(200, b"ok")
        assert len(peer.lines) == 2
