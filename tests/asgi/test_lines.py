"""An answer of lines: as its source gives them, whole or seen as half, and never for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from bascule.asgi.errors import ClientGone
from bascule.asgi.lines import LinesAnswer
from tests.waits import SOON_SECONDS


class Source:
    """Lines, and whether somebody closed them."""

    def __init__(self, *lines: bytes, error: Exception | None = None) -> None:
        self._lines = lines
        self._error = error
        self.closed = False

    async def lines(self) -> AsyncGenerator[bytes, None]:
        try:
            for line in self._lines:
                yield line
            if self._error is not None:
                raise self._error
        finally:
            self.closed = True


async def answered(
    answer: LinesAnswer, *, method: str = "GET", gone: bool = False, stalls: bool = False
) -> list[Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        if not gone:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if stalls and message["type"] == "http.response.body":
            await asyncio.Event().wait()
        sent.append(message)

    async with asyncio.timeout(SOON_SECONDS):
        await answer({"type": "http", "method": method}, receive, send)
    return sent


async def test_lines_are_sent_as_they_come_and_the_answer_ends_with_them():
    source = Source(b"1\n", b"2\n")
    start, *rest = await answered(LinesAnswer(source.lines()))
    assert (b"content-type", b"application/jsonl") in start["headers"]
    assert [(part["body"], part["more_body"]) for part in rest] == [
        (b"1\n", True),
        (b"2\n", True),
        (b"", False),
    ]
    assert source.closed


async def test_a_head_has_no_lines():
    _, last = await answered(LinesAnswer(Source(b"1\n").lines()), method="HEAD")
    assert (last["body"], last["more_body"]) == (b"", False)


async def test_an_answer_whose_source_fails_has_no_end():
    sent: list[Any] = []
    with pytest.raises(OSError, match="disk"):
        sent += await answered(LinesAnswer(Source(b"1\n", error=OSError("disk")).lines()))
    assert sent == []


async def test_a_reader_that_takes_nothing_is_let_go():
    source = Source(b"1\n")
    with pytest.raises(ClientGone):
        await answered(LinesAnswer(source.lines(), stalled_seconds=0.01), stalls=True)
    assert source.closed


async def test_the_source_is_closed_when_the_reader_hangs_up():
    class Endless(Source):
        async def lines(self) -> AsyncGenerator[bytes, None]:
            try:
                yield b"1\n"
                await asyncio.Event().wait()
            finally:
                self.closed = True

    source = Endless()
    await answered(LinesAnswer(source.lines()), gone=True)
    assert source.closed
