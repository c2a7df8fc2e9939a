"""Large results: cleaned as far as they are shown, and further as far as they are read."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bascule.errors import ToolError
from bascule.node.bridge.session import Session
from bascule.policy.cleaning import clean_value
from bascule.policy.leaks import Scanner
from bascule.policy.output import cap_content
from tests.laws.canaries import AWS_KEY, CANARIES, HIDDEN, KNOWN, KNOWN_LINES, ORDINARY
from tests.node.fakes import World, cut, failed, text
from tests.policy.build import server
from tests.scale import scaled

KIB = 1024
SCANNER = Scanner([KNOWN, KNOWN_LINES])
FILLER = "".join(random.Random(14).choices([o for o in ORDINARY if o.isascii()], k=20_000))
HARMLESS = [piece for piece in ORDINARY if piece.strip()]


def session_of(limit: int, result: dict[str, Any], **hygiene: str) -> Session:
    """Make a session whose tool gives this result under this cap."""
    world = World(
        server("fs", budgets={"max_tool_output_bytes": limit}, hygiene={"leaks": "mask", **hygiene})
    )
    world.caller.hide(KNOWN, KNOWN_LINES)
    world.caller.answers("read", result)
    return world.session()


class Planted(NamedTuple):
    """A long text with something in it before the cap, across it, and far behind it."""

    limit: int
    before: str
    across: str
    beyond: str
    shift: int

    @property
    def said(self) -> str:
        at = max(0, self.limit - len(self.before) - self.shift)
        start = f"{self.before} {FILLER[:at]}{self.across} "
        return f"{start}{FILLER[at:120_000]} {self.beyond}\n{FILLER[:20_000]}"


#: A lone surrogate never comes over the wire.
PIECES = st.sampled_from([p for p in (*CANARIES, *HIDDEN, *HARMLESS) if p != "\ud800"])
planted_texts = st.builds(
    Planted,
    limit=st.integers(150, 3000),
    before=st.lists(PIECES, max_size=3).map(" ".join),
    across=PIECES,
    beyond=st.sampled_from(("", AWS_KEY, *CANARIES)),
    shift=st.integers(-20, 120),
)
#: Each example is large: take few, and show the one that fails as it is.
few = settings(max_examples=scaled(40), phases=[Phase.explicit, Phase.reuse, Phase.generate])


def rows(said: str) -> list[dict[str, Any]]:
    """Return a text as rows, of which the first has a member that says credential."""
    lines = enumerate(said.split("\n"))
    found: list[dict[str, Any]] = [{"n": n, "ok": None, "line": line} for n, line in lines]
    return [{"api_key": "xK9mQ2vL5n"}, *found]


SHAPES = {
    "a text": text,
    "texts": lambda said: text("first", said, "last"),
    "halves": lambda said: text(said[: len(said) // 2], said[len(said) // 2 :]),
    "lines": lambda said: text(*said.split("\n")),
    "wrapped": lambda said: text(said, structuredContent={"result": said}),
    "beside": lambda said: text(said, structuredContent={"content": said, "path": "/a", "n": 1}),
    "structured": lambda said: {"content": [], "structuredContent": {"rows": rows(said)}},
    "structured text": lambda said: {"content": [], "structuredContent": {"a": [said], "b": 1}},
    "more": lambda said: text("rows", structuredContent={"rows": rows(said)}),
    "resource": lambda said: {
        "content": [{"type": "resource", "resource": {"uri": "a:b", "text": said}}]
    },
    "picture": lambda said: {
        "content": [
            {"type": "image", "data": "iVBORw0K" * 9, "mimeType": "image/png"},
            {"type": "text", "text": said},
        ],
        "structuredContent": {"image": "iVBORw0K" * 9, "rows": rows(said)},
    },
    "novel": lambda said: {
        "content": [{"type": "novel", "rows": rows(said)}, {"type": "text", "text": said}]
    },
}  # fmt: skip


def without_totals(shown: object) -> str:
    """Return what is shown as text; what lies behind it may weigh less when it is cleaned."""
    written = json.dumps(shown, ensure_ascii=False)
    return re.sub(r'(?<= of )\d+(?= bytes)|(?<="total": )\d+|(?<=novel, )\d+', "N", written)


@pytest.mark.parametrize("shape", SHAPES)
@few
@given(planted=planted_texts)
def test_a_large_result_is_shown_as_if_all_of_it_had_been_cleaned(shape: str, planted: Planted):
    limit, result = planted.limit, SHAPES[shape](planted.said)
    outcome = cut(asyncio.run(called(session_of(limit, result))))
    [content, structured] = clean_value(
        [result["content"], result.get("structuredContent")], SCANNER
    ).value
    expected = cap_content(content, structured, limit, 4 * KIB * KIB)
    assert outcome.truncated is not None
    assert expected.truncated
    shown, crumbs = crumbs_apart(expected.content, len(outcome.content))
    assert outcome.truncated.shown == expected.shown + expected.media_shown - crumbs
    both = [list(outcome.content), outcome.structured], [shown, expected.structured]
    assert without_totals(both[0]) == without_totals(both[1])
    if not planted.beyond and shape != "novel":  # nothing is looked at of what is left out
        assert outcome.truncated.total == expected.total + expected.media_total


def crumbs_apart(content: Sequence[Mapping[str, Any]], number: int) -> tuple[list[Any], int]:
    """Return so many blocks, and the bytes of further ones that had a little room behind a cut."""
    crumbs = sum(len(block["text"]) for block in content[number:])
    assert crumbs < len("[truncated: ]")
    return list(content[:number]), crumbs


@few
@given(limit=st.integers(150, 3000), indent=st.sampled_from([None, 1]))
def test_a_large_text_that_spells_structured_content_out_is_cut_as_before(
    limit: int, indent: int | None
):
    value = {"rows": [{"n": n, "line": line} for n, line in enumerate(FILLER.split("\n"))]}
    content = text(json.dumps(value, indent=indent))["content"]
    result = {"content": content, "structuredContent": value}
    outcome = cut(asyncio.run(called(session_of(limit, result))))
    expected = cap_content(content, value, limit)
    assert outcome.truncated is not None
    assert (list(outcome.content), outcome.structured) == (expected.content, expected.structured)
    assert (outcome.truncated.shown, outcome.truncated.total) == (expected.shown, expected.total)


async def called(session: Session) -> Any:
    return await session.call("mcp__fs__read")


@pytest.mark.requirement("outcomes:cut:handle", "hygiene:leaks:results")
@pytest.mark.parametrize("shape", ["a text", "structured", "structured text", "more"])
@few
@given(planted=planted_texts, places=st.lists(st.integers(0, 260_000), min_size=2, max_size=8))
def test_what_is_read_in_any_order_is_the_text_cleaned_as_a_whole(
    shape: str, planted: Planted, places: list[int]
):
    result = SHAPES[shape](planted.said)
    session = session_of(planted.limit, result)
    handle = asyncio.run(handle_of(session))
    cleaned = clean_value([result["content"], result.get("structuredContent")], SCANNER).value
    content, structured = cleaned
    whole = "\n".join(block["text"] for block in content)
    if structured is not None:
        written = json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
        whole = f"{whole}\n{written}" if whole else written
    raw = whole.encode()
    for start, end in pairwise(places):
        part = asyncio.run(session.output(handle, start, end))
        assert part == raw[start:end].decode("utf-8", "ignore")
    assert session.read_output(handle, -20) == raw[-20:].decode("utf-8", "ignore")
    assert session.read_output(handle) == whole


async def handle_of(session: Session) -> str:
    outcome = cut(await session.call("mcp__fs__read"))
    assert outcome.truncated is not None
    assert outcome.truncated.handle is not None
    return outcome.truncated.handle


@pytest.mark.requirement("hygiene:leaks:results", "hygiene:leaks:mask")
async def test_what_is_not_shown_is_cleaned_when_it_is_read_and_not_before():
    far = f"{FILLER}{AWS_KEY}\x1b\n{FILLER}"
    session = session_of(KIB, text(far))
    outcome = cut(await session.call("mcp__fs__read"))
    assert outcome.warnings == ()
    assert outcome.truncated is not None
    assert outcome.truncated.total == len(far)
    handle = await handle_of(session)
    assert await session.output(handle, 0, KIB) == far[:KIB]
    near = await session.output(handle, len(FILLER) - 10, len(FILLER) + 40)
    assert near.startswith(f"{FILLER[-10:]}[masked:aws-access-key]\\x1b")


@pytest.mark.requirement("hygiene:leaks:block")
@pytest.mark.parametrize("place", [0, KIB - 100, KIB - 30])
async def test_under_block_a_large_result_is_withheld_for_a_credential_that_would_be_shown(
    place: int,
):
    said = f"{FILLER[:place]} {AWS_KEY} {FILLER}"
    session = session_of(KIB, text(said), leaks="block")
    outcome = failed(await session.call("mcp__fs__read"), "mcp_policy_denied")
    assert outcome.content == ()
    assert outcome.truncated is None


@pytest.mark.requirement("hygiene:leaks:block", "outcomes:cut:handle")
@pytest.mark.parametrize("shape", ["a text", "structured"])
async def test_under_block_reading_on_is_refused_from_where_a_credential_stands(shape: str):
    said = f"{FILLER}\n{AWS_KEY}\n{FILLER}"
    lines: Any = {"content": [], "structuredContent": {"lines": said.split("\n")}}
    session = session_of(KIB, text(said) if shape == "a text" else lines, leaks="block")
    handle = await handle_of(session)
    start = await session.output(handle, 0, KIB)
    assert len(start) == KIB
    written = said if shape == "a text" else json.dumps(lines["structuredContent"])
    place = written.replace('", "', '","').index(AWS_KEY)
    for _ in range(2):
        for part in ((place, place + 9), (2 * place, None), (0, None)):
            with pytest.raises(ToolError, match=r"hygiene\.leaks") as refused:
                await session.output(handle, *part)
            assert refused.value.code == "mcp_policy_denied"
            assert AWS_KEY not in str(refused.value)
    assert session.read_output(handle, 0, KIB) == start


@pytest.mark.requirement("hygiene:leaks:off")
async def test_under_off_a_large_result_keeps_its_credentials_and_loses_hidden_characters():
    said = f"{AWS_KEY}\x1b {FILLER} {AWS_KEY}\x1b"
    session = session_of(KIB, text(said), leaks="off")
    outcome = cut(await session.call("mcp__fs__read"))
    assert outcome.text.startswith(f"{AWS_KEY}\\x1b ")
    assert session.read_output(await handle_of(session)) == said.replace("\x1b", "\\x1b")


@pytest.mark.requirement("hygiene:leaks:mask")
async def test_a_result_of_credentials_alone_is_looked_at_until_its_cap_is_filled():
    said = f"{AWS_KEY}\n" * 6000
    outcome = cut(await called(session_of(30 * KIB, text(said))))
    masked = "[masked:aws-access-key]\n" * 6000
    assert outcome.text.startswith(masked[: 29 * KIB])


@pytest.mark.requirement("hygiene:leaks:mask", "outcomes:too-large")
async def test_a_large_result_that_masking_makes_small_is_whole():
    lines = ("MIIEvQ1bA+9/zXc8" * 4 + "\n") * 240
    key = f"-----BEGIN {'PRIVATE'} KEY-----\n{lines}-----END PRIVATE KEY-----"
    outcome = await called(session_of(KIB, text(f"keys: {key} " * 8)))
    assert outcome.truncated is None
    assert outcome.text == "keys: [masked:private-key] " * 8


async def test_other_work_goes_on_while_a_large_output_is_cleaned():
    session = session_of(KIB, text(FILLER * 4))
    handle = await handle_of(session)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await session.core.clock.sleep(0)

    counting = asyncio.ensure_future(count())
    assert await session.output(handle) == FILLER * 4
    counting.cancel()
    assert turns >= len(FILLER) * 4 // (64 * KIB)


def test_an_output_that_outgrows_the_bound_while_it_is_read_is_gone():
    outputs = session_of(KIB, text("")).outputs
    handle = outputs.keep(iter(["a" * 10 * KIB * KIB, "b" * 10 * KIB * KIB]), 1000)
    assert handle is not None
    assert outputs.size == 1000
    with pytest.raises(KeyError):
        outputs.read(handle, 0, None)
    assert outputs.size == 0
