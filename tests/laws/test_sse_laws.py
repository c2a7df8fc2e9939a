"""The laws of reading events: how a stream is cut into chunks is nobody's business."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from bascule.wire.sse import EventTooLarge, SseEvent, SseReader

NAMES = st.sampled_from([b"data", b"event", b"id", b"retry", b"", b"other", b"data "])
VALUES = st.sampled_from([b"", b"x", b" x", b"12", b"a: b", b"\xff", b"\0", b"  "]) | st.binary(
    max_size=8
).map(lambda value: re.sub(rb"[\r\n]", b".", value))
LINES = st.one_of(
    st.just(b""),
    st.builds(lambda name, value: name + b":" + value, NAMES, VALUES),
    NAMES,
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=30).map(
    lambda pairs: b"".join(line + end for line, end in pairs)
)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    """The stream in pieces, none of them empty."""
    bounds = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in itertools.pairwise(bounds)]


def read(chunks: list[bytes]) -> tuple[list[SseEvent], str | None, int | None]:
    reader = SseReader()
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return events, reader.last_id, reader.retry_ms


def oracle(stream: bytes) -> list[tuple[bytes, str]]:
    """Data and name of each event, read line by line from the whole stream, as is written."""
    found: list[tuple[bytes, str]] = []
    data: list[bytes] = []
    event = b""
    for line in re.split(rb"\r\n|\r|\n", stream)[:-1]:
        name, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if line == b"":
            if data:
                found.append((b"\n".join(data), event.decode("utf-8", "replace") or "message"))
            data, event = [], b""
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
    return found


@given(STREAMS, st.lists(st.integers(0, 1000), max_size=20))
def test_any_chunking_gives_the_same_events(stream: bytes, places: list[int]):
    whole = read([stream] if stream else [])
    assert read(cut(stream, places)) == whole
    assert read([bytes([byte]) for byte in stream]) == whole


@given(STREAMS)
def test_the_events_are_those_of_the_specification(stream: bytes):
    events, _, _ = read([stream] if stream else [])
    assert [(event.data, event.event) for event in events] == oracle(stream)


@given(STREAMS, st.integers(1, 40), st.lists(st.integers(0, 1000), max_size=20))
def test_a_cap_gives_the_same_events_up_to_where_it_refuses(
    stream: bytes, limit: int, places: list[int]
):
    expected, _, _ = read([stream] if stream else [])
    reader = SseReader(limit)
    events: list[SseEvent] = []
    try:
        for chunk in cut(stream, places):
            events += reader.feed(chunk)
    except EventTooLarge:
        assert events == expected[: len(events)]
    else:
        assert events == expected


@given(st.binary(max_size=200), st.lists(st.integers(0, 1000), max_size=20))
def test_nothing_that_arrives_can_break_the_reader(stream: bytes, places: list[int]):
    events, _, _ = read(cut(stream, places))
    assert all(isinstance(event.data, bytes) for event in events)
