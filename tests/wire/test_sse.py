"""Server-sent events: whatever the lines end in and wherever they are cut, the same events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.wire.sse import EventTooLarge, SseEvent, SseReader


def read(*chunks: bytes, limit: int = 1000) -> list[SseEvent]:
    reader = SseReader(limit)
    return [event for chunk in chunks for event in reader.feed(chunk)]


def data(*chunks: bytes, limit: int = 1000) -> list[bytes]:
    return [event.data for event in read(*chunks, limit=limit)]


def test_an_event_has_data_a_name_an_id_and_a_delay():
    stream = b"id: 7\nevent: endpoint\nretry: 250\ndata: /messages\n\n"
    assert read(stream) == [SseEvent(b"/messages", "endpoint", "7", 250)]


def test_an_event_without_a_name_is_a_message():
    assert read(b"data: x\n\nevent:\ndata: y\n\n") == [
        SseEvent(b"x", "message", None, None),
        SseEvent(b"y", "message", None, None),
    ]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_may_end_in_any_of_the_three_ways(end):
    lines = [b"data: a", b"data: b", b"", b"data: c", b"", b""]
    stream = end.join(lines)
    assert data(stream) == [b"a\nb", b"c"]
    assert data(*(stream[at : at + 1] for at in range(len(stream)))) == [b"a\nb", b"c"]


def test_an_event_is_given_at_once_and_not_after_the_second_half_of_its_line_end():
    reader = SseReader()
    assert [event.data for event in reader.feed(b"data: a\r\n\r")] == [b"a"]
    assert reader.feed(b"\n") == []
    assert [event.data for event in reader.feed(b"data: b\n\n")] == [b"b"]


def test_mixed_line_ends_do_not_run_into_each_other():
    assert data(b"data: a\r\r\ndata: b\n\r\n") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: one\ndata: two\n\n", [b"one\ntwo"]),
        (b"data:one\n\n", [b"one"]),
        (b"data:  two spaces, one of them ours\n\n", [b" two spaces, one of them ours"]),
        (b"data: a: b\n\n", [b"a: b"]),
        (b"data\n\n", [b""]),
        (b"data:\ndata:\n\n", [b"\n"]),
        (b"data: \xff\xfe is not ours to judge\n\n", [b"\xff\xfe is not ours to judge"]),
        (b": a comment\n\n:\n\ndata: x\n: another\n\n", [b"x"]),
        (b"dat: x\nDATA: x\nunknown\n\n", []),
        (b"\n\n\n\ndata: x\n\n\n\n", [b"x"]),
        (b"data: never finished\n", []),
        (b"event: only a name\n\ndata: x\n\n", [b"x"]),
    ],
)
def test_lines_become_data(stream, expected):
    assert data(stream) == expected


def test_a_name_ends_with_its_event_even_if_that_had_no_data():
    assert [event.event for event in read(b"event: ping\n\ndata: x\n\n")] == ["message"]


def test_an_id_lasts_until_the_next_one():
    stream = b"data: a\n\nid: 1\ndata: b\n\ndata: c\n\nid\ndata: d\n\nid: 2\n\ndata: e\n\n"
    assert [event.id for event in read(stream)] == [None, "1", "1", "", "2"]


def test_an_id_is_remembered_for_resumption_even_without_an_event():
    reader = SseReader()
    assert reader.feed(b"id: 4.0\nretry: 5\n\n") == []
    assert (reader.last_id, reader.retry_ms) == ("4.0", 5)


@pytest.mark.parametrize("line", [b"id: a\0b", b"retry: soon", b"retry: -1", b"retry: \xc2\xb2"])
def test_an_id_or_a_delay_that_makes_no_sense_is_none(line):
    (event,) = read(line + b"\ndata: x\n\n")
    assert (event.id, event.retry_ms) == (None, None)


def test_a_delay_of_any_length_is_a_number():
    (event,) = read(b"retry: " + b"9" * 900 + b"\ndata: x\n\n")
    assert event.retry_ms is not None
    assert event.retry_ms > 10**6


@pytest.mark.parametrize(
    "chunks",
    [
        (b"data: " + b"x" * 60, b"x" * 60),
        (b"data: " + b"x" * 60 + b"\n", b"data: " + b"x" * 60 + b"\n"),
        (b": " + b"c" * 60, b"c" * 60),
        tuple(b"x" for _ in range(101)),
    ],
)
def test_what_never_ends_is_refused_at_the_cap(chunks):
    with pytest.raises(EventTooLarge, match="100 bytes"):
        read(*chunks, limit=100)


def test_the_cap_is_for_each_event_and_not_for_the_stream():
    assert len(data(*[b"data: " + b"x" * 90 + b"\n\n"] * 50, limit=100)) == 50
    assert len(data((b"data: " + b"x" * 90 + b"\n\n") * 50, limit=100)) == 50
    assert data(*[b": keep alive\n\n"] * 50, b"data: x\n\n", limit=100) == [b"x"]


def test_an_empty_chunk_changes_nothing():
    assert data(b"data: a\r", b"", b"\ndata: b\r\n\r\n") == [b"a\nb"]


def test_lines_without_data_count_too():
    with pytest.raises(EventTooLarge):
        read(*[b"data:\n"] * 1000, limit=100)


def test_an_event_over_the_cap_is_refused_even_if_it_comes_in_one_piece():
    with pytest.raises(EventTooLarge):
        read(b"data: " + b"x" * 500 + b"\n\n", limit=100)


def test_a_byte_order_mark_at_the_very_start_is_skipped():
    assert data(b"\xef\xbb", b"\xbfdata: a\n\n") == [b"a"]


PIECES = st.sampled_from(
    [
        *(b"data: x\n\n", b"data: \n\n", b"data: y\n", b"data:z\n\n", b"data\n\n", b"\n", b"\n\n"),
        *(
            b"\r",
            b"\r\n",
            b"event: e\n",
            b"event: e\n\n",
            b"id: 7\n",
            b"retry: 5\n\n",
            b": note\n\n",
        ),
        *(b"data: a long line, longer than some\n\n", b"\xef\xbb\xbf", b"data: ", b"x", b""),
    ]
)


@given(st.lists(PIECES, max_size=12), st.sampled_from([16, 30, 1000]))
def test_chunks_of_any_size_give_the_events_of_single_bytes(pieces: list[bytes], limit: int):
    stream = b"".join(pieces)
    single = [stream[at : at + 1] for at in range(len(stream))]
    assert read_or_refused(pieces, limit) == read_or_refused(single, limit)
    assert read_or_refused([stream], limit) == read_or_refused(single, limit)


def read_or_refused(chunks: list[bytes], limit: int) -> list[SseEvent] | None:
    """Return the events, or None where one is too large."""
    try:
        return read(*chunks, limit=limit)
    except EventTooLarge:
        return None
