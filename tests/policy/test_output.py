"""Output caps, by example. The laws are in ``tests/laws/test_output_laws.py``."""

from __future__ import annotations

import orjson

from bascule.policy.output import cap_content, cap_text, cut_marker, repeats, weight


def text(value: str) -> dict[str, object]:
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


def test_an_image_over_the_cap_becomes_a_line_that_says_what_it_was():
    image = {"type": "image", "data": "A" * 5000, "mimeType": "image/png"}
    capped = cap_content([text("before"), image, text("after")], None, 200)
    size = len(orjson.dumps(image))
    line = f"[left out: image of image/png, {size} bytes, over the output cap]"
    assert capped.content == [text("before"), text(line), text("after")]
    assert (capped.shown, capped.total) == (11, 11 + size)


def test_an_embedded_text_is_cut_inside_its_resource():
    resource = {"uri": "file:///a", "mimeType": "text/plain", "text": 'say "hi"\n' * 100}
    capped = cap_content([{"type": "resource", "resource": resource}], None, 300)
    (block,) = capped.content
    assert block["resource"]["uri"] == "file:///a"
    assert block["resource"]["text"].startswith('say "hi"\n')
    assert block["resource"]["text"].endswith("of 900 bytes shown]")
    assert len(orjson.dumps(block)) <= 300


def test_a_binary_resource_names_its_type():
    blob = {"uri": "file:///a", "mimeType": "application/pdf", "blob": "A" * 900}
    capped = cap_content([{"type": "resource", "resource": blob}], None, 300)
    assert "resource of application/pdf" in capped.content[0]["text"]


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
    cut = cap_content([copy], value, 100)
    assert cut.content == []
    assert cut.structured["truncated"]["total"] == len(orjson.dumps(value))


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
