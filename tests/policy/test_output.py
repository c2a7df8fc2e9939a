"""Output caps, by example. The laws are in ``tests/laws/test_output_laws.py``."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from bascule.policy.copies import repeats
from bascule.policy.output import cap_content, cap_text, cut_marker, weight


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_a_short_text_is_left_alone():
    assert cap_text("hello é", 8) == ("hello é", 8, 8, False)


def test_a_long_text_is_cut_with_a_marker_inside_the_cap():
    cut = cap_text("x" * 1000, 200)
    assert cut.truncated
    assert cut.text == "x" * cut.shown + cut_marker(cut.shown, 1000)
    assert len(cut.text) == 200 - (len("1000") - len(str(cut.shown)))


def test_a_cap_too_small_for_a_marker_still_holds():
    assert cap_text("abcdef", 4) == ("abcd", 4, 6, True)
    assert cap_text("abcdef", 0) == ("", 0, 6, True)


def test_a_cut_never_splits_a_character():
    assert cap_text("aé漢👩", 5) == ("aé", 3, 10, True)


def test_a_lone_surrogate_does_not_break_the_cap():
    assert cap_text("\ud800" * 300, 200).truncated
    assert cap_text("\ud800", 10).text == "?"


def test_a_result_under_the_cap_is_the_same_object():
    content = [text("a"), {"type": "image", "data": "AAAA", "mimeType": "image/png"}]
    capped = cap_content(content, {"a": 1}, 1000)
    assert capped.content is content
    assert not capped.truncated
    assert capped.shown == capped.total == weight(content, {"a": 1})


def test_blocks_are_kept_in_order_until_the_cap_is_reached():
    capped = cap_content([text("a" * 100), text("b" * 300), text("c" * 9)], None, 250)
    first, second = capped.content
    assert first == text("a" * 100)
    assert second["text"].startswith("bbb")
    assert second["text"].endswith("of 300 bytes shown]")
    assert capped.total == 409
    assert weight(capped.content) <= 250


def image(size: int) -> dict[str, Any]:
    return {"type": "image", "data": "A" * (size * 4 // 3), "mimeType": "image/png"}


def test_media_have_a_cap_of_their_own():
    content = [text("a picture"), image(300_000)]
    capped = cap_content(content, None, 1000, 400_000)
    assert capped.content is content
    assert not capped.truncated
    assert (capped.media_shown, capped.media_total) == (300_000, 300_000)
    assert capped.total == weight(content) < 100


def test_media_over_their_cap_become_a_line_that_says_what_they_were():
    blob = {"uri": "a:b", "mimeType": "application/pdf", "blob": "A" * 1200}
    content = [text("before"), image(3000), {"type": "resource", "resource": blob}, text("after")]
    capped = cap_content(content, None, 1000, 1000)
    line = "[left out: image of image/png, 3000 bytes, over the media cap]"
    assert capped.content == [text("before"), text(line), content[2], text("after")]
    assert capped.truncated
    assert (capped.media_shown, capped.media_total) == (900, 3900)
    assert capped.shown < capped.total


def test_structured_content_that_repeats_media_is_counted_once_and_cut_alike():
    picture = image(3000)
    structured = {"result": dict(picture)}
    assert weight([picture], structured) < 200
    cut = cap_content([picture], structured, 1000, 100)
    assert cut.structured["result"]["data"] == cut.content[0]["text"]


def test_an_embedded_text_is_cut_inside_its_resource():
    resource = {"uri": "file:///a", "mimeType": "text/plain", "text": 'say "hi"\n' * 100}
    capped = cap_content([{"type": "resource", "resource": resource}], None, 300)
    (block,) = capped.content
    assert block["resource"]["uri"] == "file:///a"
    assert block["resource"]["text"].startswith('say "hi"\n')
    assert block["resource"]["text"].endswith("of 900 bytes shown]")
    assert len(orjson.dumps(block)) <= 300


def test_structured_content_over_the_cap_keeps_the_start_of_its_json():
    value = {"rows": ['"quoted"'] * 200}
    raw = orjson.dumps(value)
    capped = cap_content([], value, 300)
    assert capped.structured["truncated"] == {"shown": capped.shown, "total": len(raw)}
    assert raw.decode().startswith(capped.structured["json"])
    assert 100 < len(orjson.dumps(capped.structured)) <= 300


def test_structured_content_gives_way_step_by_step_as_the_cap_shrinks():
    value = {"rows": list(range(100))}
    assert cap_content([], value, 30).structured == {"truncated": True}
    assert cap_content([], value, 5).structured is None


def test_a_text_that_repeats_the_structured_content_weighs_nothing():
    value = {"rows": list(range(50))}
    copy = text(orjson.dumps(value).decode())
    assert weight([copy], value) == len(orjson.dumps(value))
    assert cap_content([copy], value, len(orjson.dumps(value))).truncated is False


def test_a_text_that_repeats_the_only_member_weighs_nothing_and_one_of_several_its_own_size():
    rows = list(range(50))
    copy = text(orjson.dumps(rows).decode())
    wrapped, among = {"rows": rows}, {"rows": rows, "next": 2}
    assert weight([copy], wrapped) == len(orjson.dumps(wrapped))
    assert weight([copy], among) == len(orjson.dumps(among)) + len(orjson.dumps(rows))


def test_a_text_that_is_the_json_of_structured_content_is_cut_and_so_is_its_copy():
    value = {"rows": list(range(500))}
    copy = text(orjson.dumps(value).decode())
    cut = cap_content([copy], value, 1000)
    [block] = cut.content
    assert block["text"].endswith(cut_marker(cut.shown, cut.total))
    assert cut.structured == {
        "truncated": {"shown": cut.shown, "total": cut.total},
        "json": block["text"],
    }
    assert 750 < cut.shown <= 1000
    assert cap_content([copy], value, 100).structured is None


@pytest.mark.parametrize("wrap", ["content", "result", "text", "output"])
@pytest.mark.parametrize("said", ["line\n" * 200, 'é漢"' * 150])
def test_a_wrapper_around_the_text_weighs_nothing(wrap: str, said: str):
    size = len(said.encode())
    capped = cap_content([text(said)], {wrap: said}, size)
    assert (capped.truncated, capped.total) == (False, size)


def test_a_string_anywhere_in_structured_content_that_a_block_says_is_counted_once():
    said = "x" * 900
    structured = {"files": [{"path": "a.txt", "body": said}]}
    bare = orjson.dumps({"files": [{"path": "a.txt", "body": ""}]})
    assert weight([text(said)], structured) == 900 + len(bare)


def test_a_text_and_its_copy_are_cut_alike():
    said = "".join(f"line {n}\n" for n in range(500))
    cut = cap_content([text(said)], {"path": "a.txt", "content": said}, 1000)
    [block] = cut.content
    assert block["text"] == cut.structured["content"]
    assert cut.structured["path"] == "a.txt"
    kept, _, marker = block["text"].rpartition("\n[truncated: ")
    assert said.startswith(kept)
    assert marker == f"{len(kept)} of {len(said)} bytes shown]"
    assert len(kept) > 900


def test_items_of_a_list_that_have_a_block_each_are_counted_once():
    rows = [{"id": n, "title": f"row {n}"} for n in range(40)]
    blocks = [text(orjson.dumps(row, option=orjson.OPT_INDENT_2).decode()) for row in rows]
    assert weight(blocks, {"result": rows}) == len(orjson.dumps({"result": rows}))
    assert weight([text(orjson.dumps(rows).decode())], {"result": rows}) == len(
        orjson.dumps({"result": rows})
    )
    cut = cap_content(blocks, {"result": rows}, 500)
    assert set(cut.structured) == {"truncated"}
    assert cut.total == sum(len(block["text"]) for block in blocks)


def test_the_larger_part_of_the_room_is_for_text():
    said, rows = "t" * 5000, ["r" * 90] * 90
    cut = cap_content([text(said)], {"rows": rows}, 1000)
    assert len(cut.content[0]["text"]) > 700
    assert 100 < len(orjson.dumps(cut.structured)) <= 250
    short = cap_content([text("short")], {"rows": rows}, 1000)
    assert short.content == [text("short")]
    assert len(orjson.dumps(short.structured)) > 900


def test_only_equal_json_counts_as_a_repeat():
    assert repeats(' {"a": 1.0}', {"a": 1})
    assert not repeats('{"a": 2}', {"a": 1})
    assert not repeats("{broken", {"a": 1})
    assert not repeats("1", 1)


def test_a_number_beyond_64_bits_can_be_weighed():
    assert weight([], {"n": 1 << 80}) == len('{"n":1208925819614629174706176}')


def test_an_unknown_block_is_kept_when_it_fits_and_described_when_not():
    block = {"type": "hologram", "payload": "z" * 400}
    assert cap_content([block], None, 1000).content == [block]
    assert "left out: hologram," in cap_content([block], None, 100).content[0]["text"]


@pytest.mark.parametrize(
    "block", [{"type": "note", "text": "x" * 500}, {"type": "text", "text": ["x" * 500]}]
)
def test_only_a_text_block_is_cut_inside_its_text(block: dict[str, Any]):
    [shown] = cap_content([block], None, 200).content
    assert "left out: " in shown["text"]
    assert "xxx" not in shown["text"]
