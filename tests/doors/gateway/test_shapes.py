"""Whatever a server lists or answers, a client is shown what is valid in its own version."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import methods

from bascule.doors.gateway.shapes import ResultFields, block_for, result_for, tool_for
from bascule.model.json import objects
from tests.doors.gateway.schemas import VERSIONS, check, check_as

MODERN = VERSIONS[-1]
VERSION = st.sampled_from(VERSIONS)
WORDS = st.text(max_size=8)
#: Values of every type, and such as are nearly what a field wants.
ODD = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        0.5,
        1.0,
        1.5,
        2**53,
        "",
        "yes",
        "text",
        "user",
        "a:b",
        "====",
        "YQ",
    ),
    *([], [None], [[]], [{}], ["user"], ["user", 5], ["robot"], [{"src": 5}], [{"src": "a:b"}, {}]),
    *(
        {},
        {"type": "object"},
        {"type": "array"},
        {"a": True, "b": False, "c": None, "d": {}, "e": 1},
    ),
    *({"title": 5, "readOnlyHint": "yes"}, {"taskSupport": "perhaps"}, {"priority": 2}),
    *({"uri": "a"}, {"text": "x"}, {"uri": "a:b", "text": "x"}, {"uri": "a:b", "blob": "x"}),
    *({"uri": "a:b", "text": "x", "blob": 5}, {"result": "x"}, {"name": "n", "version": 1}),
)
JSON = st.sampled_from(ODD) | WORDS
OBJECT = st.dictionaries(WORDS, JSON, max_size=3)
URI = st.sampled_from(["https://example.com/a b", "file:///tmp/ä", "notes:1"])
BASE64 = st.binary(max_size=6).map(lambda data: b64encode(data).decode())
#: Names that no version has, so that they stay whatever they hold.
VENDOR = st.dictionaries(WORDS.map("x-{}".format), JSON, max_size=2)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these fields, and fields that nobody knows."""
    known = st.fixed_dictionaries({}, optional=fields)
    return st.tuples(known, VENDOR).map(lambda pair: {**pair[0], **pair[1]})


def but(
    base: st.SearchStrategy[dict[str, Any]], **fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    """An object that has all of these fields besides."""
    return st.tuples(base, st.fixed_dictionaries(fields)).map(lambda pair: pair[0] | pair[1])


ICONS = st.lists(
    but(
        some(
            mimeType=WORDS,
            sizes=st.lists(WORDS, max_size=2),
            theme=st.just("dark"),
        ),
        src=URI,
    ),
    max_size=2,
)
HINTS = some(
    title=WORDS,
    readOnlyHint=st.booleans(),
    destructiveHint=st.booleans(),
    idempotentHint=st.booleans(),
    openWorldHint=st.booleans(),
)
SCHEMA = but(
    some(
        properties=st.dictionaries(WORDS, OBJECT, max_size=2),
        required=st.lists(WORDS, max_size=2),
        **{"$schema": st.just("https://json-schema.org/draft/2020-12/schema"), "$defs": OBJECT},
    ),
    type=st.just("object"),
)
#: The fields of a tool: the first and the last version that has them, and what they may be.
TOOL_FIELDS: Mapping[str, tuple[str, str, st.SearchStrategy[Any]]] = {
    "description": ("2024-11-05", MODERN, WORDS),
    "annotations": ("2025-03-26", MODERN, HINTS),
    "title": ("2025-06-18", MODERN, WORDS),
    "outputSchema": ("2025-06-18", MODERN, SCHEMA),
    "_meta": ("2025-06-18", MODERN, OBJECT),
    "icons": ("2025-11-25", MODERN, ICONS),
    "execution": ("2025-11-25", "2025-11-25", some(taskSupport=st.just("optional"))),
}
ANY_SCHEMA = some(
    properties=JSON | st.dictionaries(WORDS, JSON), required=JSON, **{"$schema": JSON}
)
ANY_TOOL = but(
    some(**{name: JSON | of for name, (_, _, of) in TOOL_FIELDS.items()}, x=JSON),
    name=WORDS,
    inputSchema=but(ANY_SCHEMA, type=st.just("object")),
)


def own_tools(version: str) -> st.SearchStrategy[dict[str, Any]]:
    fields = {
        name: of for name, (first, last, of) in TOOL_FIELDS.items() if first <= version <= last
    }
    return but(some(**fields), name=WORDS, inputSchema=SCHEMA)


def own_blocks(version: str) -> st.SearchStrategy[dict[str, Any]]:
    ours: dict[str, st.SearchStrategy[Any]] = {
        "audience": st.lists(st.sampled_from(["user", "assistant"]), max_size=2),
        "priority": st.floats(0, 1) | st.sampled_from([0, 1]),
    }
    more: dict[str, st.SearchStrategy[Any]] = {}
    if version >= "2025-06-18":
        ours["lastModified"] = WORDS
        more["_meta"] = OBJECT
    held = some(mimeType=WORDS, **more)
    contents = but(held, uri=URI, text=WORDS) | but(held, uri=URI, blob=BASE64)
    base = some(annotations=some(**ours), **more)
    kinds = [
        but(base, type=st.just("text"), text=WORDS),
        but(base, type=st.just("image"), data=BASE64, mimeType=WORDS),
        but(base, type=st.just("resource"), resource=contents),
    ]
    if version >= "2025-03-26":
        kinds.append(but(base, type=st.just("audio"), data=BASE64, mimeType=WORDS))
    if version >= "2025-06-18":
        kinds.append(but(base, type=st.just("resource_link"), uri=URI, name=WORDS, size=st.just(5)))
    return st.one_of(kinds)


KINDS = ("text", "image", "audio", "resource", "resource_link", "video")
ANY_BLOCK = st.one_of(
    OBJECT,
    own_blocks(MODERN),
    some(
        type=JSON
        | st.sampled_from(["text", "image", "audio", "resource", "resource_link", "video"]),
        text=JSON,
        data=JSON | BASE64,
        mimeType=JSON,
        uri=JSON | URI,
        name=JSON,
        size=JSON,
        icons=JSON | ICONS,
        annotations=JSON | some(audience=JSON, priority=JSON, lastModified=JSON),
        resource=JSON | some(uri=JSON | URI, text=JSON, blob=JSON | BASE64, _meta=JSON),
        _meta=JSON,
    ),
)
ANY_EXTRA = some(
    _meta=JSON | some(**{"io.modelcontextprotocol/serverInfo": JSON | some(name=JSON, icons=JSON)}),
    resultType=JSON,
    ttlMs=JSON,
    cacheScope=JSON,
    inputRequests=JSON,
    requestState=JSON,
    task=JSON,
    structuredContent=JSON,
    content=JSON,
    isError=JSON,
)


def checked(result: Mapping[str, Any], version: str) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "result": result}
    check(message, version, sender="server", answers="tools/call")
    methods.validate_server_result("tools/call", version, result)


@pytest.mark.requirement("gateway:valid-messages")
@given(ANY_TOOL, VERSION)
def test_any_tool_is_shown_validly_and_the_same_when_shown_again(
    definition: dict[str, Any], version: str
) -> None:
    tool = tool_for(definition, version)
    check_as("Tool", tool, version)
    listed = {"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    methods.validate_server_result("tools/list", version, listed)
    assert tool_for(tool, version) == tool
    assert {name: value for name, value in definition.items() if name.startswith("x")}.items() <= (
        tool.items()
    )


@given(st.data(), VERSION)
def test_a_tool_of_the_version_is_shown_as_it_is(data: st.DataObject, version: str) -> None:
    tool = data.draw(own_tools(version))
    check_as("Tool", tool, version)
    assert tool_for(tool, version) == tool


@pytest.mark.requirement("gateway:valid-messages")
@given(st.lists(ANY_BLOCK, max_size=3), st.none() | JSON, st.booleans(), ANY_EXTRA, VERSION)
def test_any_result_is_shown_validly(
    content: list[dict[str, Any]],
    structured: Any,
    is_error: bool,
    extra: dict[str, Any],
    version: str,
) -> None:
    result = result_for(ResultFields(content, structured, is_error, extra), version)
    checked(result, version)
    assert result.get("isError", False) is is_error
    assert {name: value for name, value in extra.items() if name.startswith("x")}.items() <= (
        result.items()
    )


@given(st.data(), VERSION)
def test_a_result_of_the_version_is_shown_as_it_is(data: st.DataObject, version: str) -> None:
    content = data.draw(st.lists(own_blocks(version), max_size=3))
    extra = data.draw(some(_meta=OBJECT))
    structured = data.draw(st.none() | OBJECT) if version >= "2025-06-18" else None
    result = result_for(ResultFields(tuple(content), structured, extra=extra), version)
    checked(result, version)
    own = {} if structured is None else {"structuredContent": structured}
    modern = {"resultType": "complete"} if version == MODERN else {}
    assert result == {"content": content, **own, **modern, **extra}


TOOL: dict[str, Any] = {"name": "t", "inputSchema": {"type": "object"}}
LEGACY = VERSIONS[:-1]
ICON = {"src": "a:b", "mimeType": "image/png", "sizes": ["1x1"], "theme": "dark"}
OBJECT_SCHEMA = {"type": "object", "$schema": "s", "properties": {"a": {}}, "required": ["a"]}
WHOLE_TOOL: dict[str, Any] = {
    "name": "t",
    "title": "T",
    "description": "d",
    "inputSchema": OBJECT_SCHEMA,
    "outputSchema": OBJECT_SCHEMA,
    "icons": [ICON],
    "annotations": {
        "title": "T",
        **dict.fromkeys(
            ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"), True
        ),
    },
    "execution": {"taskSupport": "optional"},
    "_meta": {"a": 1},
}
ANNOTATIONS = {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-01"}
OF_BLOCKS = {"annotations": ANNOTATIONS, "_meta": {"a": 1}}
HELD = {"uri": "a:b", "mimeType": "a/b", "_meta": {"a": 1}}
WHOLE_BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "x", **OF_BLOCKS},
    {"type": "image", "data": "YQ==", "mimeType": "image/png", **OF_BLOCKS},
    {"type": "audio", "data": "YQ==", "mimeType": "audio/wav", **OF_BLOCKS},
    {"type": "resource", "resource": HELD | {"text": "x"}, **OF_BLOCKS},
    {"type": "resource", "resource": HELD | {"blob": "YQ=="}, **OF_BLOCKS},
    {
        "type": "resource_link",
        "uri": "a:b",
        "name": "n",
        "title": "t",
        "description": "d",
        "mimeType": "a/b",
        "size": 5,
        "icons": [ICON],
        **OF_BLOCKS,
    },
]
WHOLE_INFO = {
    "name": "n",
    "version": "1",
    "title": "t",
    "description": "d",
    "websiteUrl": "a:b",
    "icons": [ICON],
}
WHOLE_META = {"_meta": {"io.modelcontextprotocol/serverInfo": WHOLE_INFO}}


def spoiled(value: Any) -> Iterator[Any]:
    """Everything that a value becomes when one thing in it is replaced by something odd."""
    yield from ODD
    if isinstance(value, dict):
        for name, part in value.items():
            yield from ({**value, name: other} for other in spoiled(part))
    if isinstance(value, list):
        for n, part in enumerate(value):
            yield from ([*value[:n], other, *value[n + 1 :]] for other in spoiled(part))


def is_listed(tool: Any) -> bool:
    """Whether a definition has what the bridge asks of one."""
    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
    return isinstance(schema, dict) and schema.get("type") == "object" and tool["name"] == "t"


@pytest.mark.parametrize("version", VERSIONS)
def test_no_field_of_a_tool_can_spoil_it(version: str) -> None:
    for tool in filter(is_listed, spoiled(WHOLE_TOOL)):
        check_as("Tool", tool_for(tool, version), version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("whole", WHOLE_BLOCKS, ids=lambda block: block["type"])
def test_no_field_of_a_block_can_spoil_a_result(whole: dict[str, Any], version: str) -> None:
    for block in objects([*spoiled(whole)]):
        check_as("CallToolResult", result_for(ResultFields([block]), version), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_besides_the_content_can_spoil_a_result(version: str) -> None:
    for extra in objects([*spoiled(WHOLE_META)]):
        check_as("CallToolResult", result_for(ResultFields([], extra=extra), version), version)


def test_a_hint_of_the_wrong_type_goes_and_the_others_stay() -> None:
    hints = {"readOnlyHint": "yes", "destructiveHint": False, "title": None, "vendor": 1}
    tool = tool_for(TOOL | {"annotations": hints}, MODERN)
    assert tool["annotations"] == {"destructiveHint": False, "vendor": 1}


def test_an_icon_without_an_address_goes_and_the_others_stay() -> None:
    icons = [{"src": "https://example.com/a.png", "sizes": "any"}, {"src": "a.png"}, "a.png"]
    tool = tool_for(TOOL | {"icons": icons}, "2025-11-25")
    assert tool["icons"] == [{"src": "https://example.com/a.png"}]


def test_an_output_schema_that_is_no_object_is_for_the_modern_generation_alone() -> None:
    listing = TOOL | {"outputSchema": {"type": "array", "items": {"type": "string"}}}
    assert tool_for(listing, MODERN) == listing
    for version in LEGACY:
        assert tool_for(listing, version) == TOOL


def test_schemas_that_are_true_or_false_are_spelled_out_for_legacy_clients() -> None:
    schema = {"type": "object", "properties": {"any": True, "none": False, "n": {"type": "null"}}}
    listed = {"name": "t", "inputSchema": schema}
    assert tool_for(listed, MODERN) == listed
    for version in LEGACY:
        assert tool_for(listed, version)["inputSchema"] == {
            "type": "object",
            "properties": {"any": {}, "none": {"not": {}}, "n": {"type": "null"}},
        }


def test_audio_is_told_by_type_and_size_where_a_version_has_none() -> None:
    audio = {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"}
    shown = block_for(audio | {"annotations": {"audience": ["user"]}}, "2024-11-05")
    text = "[audio: audio/wav, 5 bytes]"
    assert shown == {"type": "text", "text": text, "annotations": {"audience": ["user"]}}
    assert block_for(audio, "2025-03-26") == audio


def test_a_link_keeps_its_address_and_name_where_a_version_has_none() -> None:
    link = {"type": "resource_link", "uri": "file:///r.txt", "name": "report", "icons": []}
    told = {"type": "text", "text": "[link: report, file:///r.txt]"}
    assert block_for(link, "2025-03-26") == told
    described = block_for(link | {"description": "All of it."}, "2024-11-05")
    assert described == {"type": "text", "text": "[link: report, file:///r.txt] All of it."}
    assert block_for(link, "2025-06-18") == {k: link[k] for k in ("type", "uri", "name")}
    assert block_for(link, "2025-11-25") == link


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "block",
    [
        {"type": "hologram", "beam": [1, 2]},
        {"type": "tool_use", "id": "1", "name": "t", "input": {}},
        {"beam": "no type"},
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "image", "data": "aGk="},
        {"type": "image", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "readme", "text": "hello"}},
        {"type": "resource", "resource": {"uri": "file:///a"}},
        {"type": "resource_link", "uri": "file:///a"},
        {"type": "resource_link", "uri": "a", "name": "a"},
    ],
    ids=str,
)
def test_a_block_that_no_client_takes_becomes_its_json(block: dict[str, Any], version: str) -> None:
    shown = block_for(block, version)
    assert shown == {"type": "text", "text": json.dumps(block, separators=(",", ":"))}
    checked(result_for(ResultFields([block]), version), version)


def test_media_that_cannot_be_shown_are_not_told_byte_by_byte() -> None:
    video = {"type": "video", "data": "aGVsbG8=", "mimeType": "video/mp4", "seconds": 3}
    told = str(block_for(video, MODERN)["text"])
    assert json.loads(told) == video | {"data": "[video: video/mp4, 5 bytes]"}


def test_base64_in_lines_stays_an_image() -> None:
    image = {"type": "image", "data": "aGVs\nbG8=\n", "mimeType": "image/png"}
    assert block_for(image, MODERN) == image


def test_the_usual_result_is_its_block_and_nothing_else() -> None:
    block = {"type": "text", "text": "hello"}
    for version in LEGACY:
        assert result_for(ResultFields((block,)), version) == {"content": [block]}
    complete = {"content": [block], "resultType": "complete"}
    assert result_for(ResultFields((block,)), MODERN) == complete
    assert result_for(ResultFields((block,), is_error=True), MODERN) == complete | {"isError": True}


@pytest.mark.parametrize("structured", [{"rows": [1, 2]}, [1, 2], "two", 2, False])
def test_structured_content_becomes_text_where_a_version_has_no_place_for_it(
    structured: Any,
) -> None:
    told = {"type": "text", "text": json.dumps(structured, separators=(",", ":"))}
    for version in VERSIONS:
        result = result_for(ResultFields((), structured), version)
        if version == MODERN or (version >= "2025-06-18" and isinstance(structured, dict)):
            assert (result["content"], result["structuredContent"]) == ([], structured)
        else:
            assert result == {"content": [told]}


@pytest.mark.parametrize(
    ("texts", "structured"),
    [
        (['{"rows": [1, 2]}'], {"rows": [1, 2]}),
        (["hello"], {"result": "hello"}),
        (['{"a": 1}', '{"a": 2}'], {"result": [{"a": 1}, {"a": 2}]}),
    ],
)
def test_structured_content_that_a_text_says_is_not_said_twice(
    texts: list[str], structured: Any
) -> None:
    content = [{"type": "text", "text": text} for text in texts]
    assert result_for(ResultFields(content, structured), "2025-03-26") == {"content": content}


def test_fields_of_other_results_go_and_unknown_ones_stay() -> None:
    info = {"name": "s", "version": "1"}
    extra = {
        "_meta": {"io.modelcontextprotocol/serverInfo": info, "vendor/trace": 1},
        "resultType": "task",
        "task": {"taskId": "1"},
        "ttlMs": 5,
        "vendor": {"any": "thing"},
    }
    text = {"type": "text", "text": "x"}
    fields = ResultFields([text], extra=extra)
    assert result_for(fields, "2025-11-25") == {
        "content": [text],
        "_meta": {"vendor/trace": 1},
        "vendor": {"any": "thing"},
    }
    assert result_for(fields, MODERN) == {
        "content": [text],
        "_meta": extra["_meta"],
        "vendor": {"any": "thing"},
        "resultType": "complete",
    }
    assert "_meta" not in result_for(ResultFields([text], extra={"_meta": [1]}), MODERN)
