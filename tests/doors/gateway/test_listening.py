"""Streams that stay open: who is told of a changed list, when, and how a stream ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.doors.gateway.stream_site import (
    CHANGED,
    Site,
    serving,
)

GENERATIONS = pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])


@pytest.fixture
async def site() -> AsyncGenerator[Site, None]:
    async with serving(Site()) as found:
        yield found


# --- what is told, and to whom


@GENERATIONS
async def test_a_stream_is_told_of_a_changed_list(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    stream = await peer.listening()
    assert await peer.tools() == ["mcp__fs__delete", "mcp__fs__read", "mcp__fs__write"]
    site.offer("read", "fresh")
    told = await stream.next()
    assert told is not None
    assert told["method"] == CHANGED
    assert await peer.tools() == ["mcp__fs__fresh", "mcp__fs__read"]
