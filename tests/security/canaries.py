"""Values that must come out nowhere, how they may be spelled, and servers that tell all they know.

A canary has characters that every encoding spells differently, and no two share a dozen letters.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ahocorasick_rs import BytesAhoCorasick
from msgspec import Struct

from bascule.testing import ScriptedServer, do
from bascule.testing.server import Step, tool

#: Stands in every output by right, as the name of a server, a tool, a secret, a token, a folder.
CONTROL = "plain_to_see"
_PIECE = 14


class Canary(Struct, frozen=True):
    """A secret, by its name in the store."""

    name: str
    value: str


def canaries(count: int, kind: str = "canary") -> list[Canary]:
    """Make so many values; each may be a variable, a header or a bearer token."""
    return [Canary(f"{kind}_{number:04}", canary_value()) for number in range(count)]


def canary_value() -> str:
    return f'{secrets.token_hex(9)}/"{secrets.token_hex(6)}\\%+{secrets.token_hex(9)}=?'


def spelled(value: str) -> Iterator[str]:
    """Yield a value as servers may repeat it, which is what the bridge has to know."""
    raw = value.encode()
    yield value
    yield json.dumps(value)[1:-1]
    yield quote(value, safe="")
    for shift in range(3):
        yield base64.b64encode(b"." * shift + raw + b"...").decode()
    yield raw.hex()


def _needles(value: str) -> Iterator[tuple[str, bytes]]:
    """Yield the seven encodings, and either end, which is what is left of one that was cut."""
    raw = value.encode()
    yield "raw", raw
    yield "json", json.dumps(value)[1:-1].encode()
    yield "url", quote(value, safe="").encode()
    yield "url", quote(value, safe="").lower().encode()
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + raw)
        whole = text[-(-shift * 8 // 6) : (shift + len(raw)) * 8 // 6]
        yield f"base64+{shift}", whole
        yield f"base64+{shift}", whole.translate(bytes.maketrans(b"+/", b"-_"))
    yield "hex", raw.hex().encode()
    yield "hex", raw.hex().upper().encode()
    yield "reversed", raw[::-1]
    yield "begin", raw[:_PIECE]
    yield "end", raw[-_PIECE:]


class Search:
    """Looks for all canaries in all their encodings at once, also across line ends."""

    def __init__(self, *values: str) -> None:
        found = {
            needle: f"{n}: {kind}" for n, v in enumerate(values) for kind, needle in _needles(v)
        }
        found[CONTROL.encode()] = CONTROL
        self._kinds = list(found.values())
        self._automaton = BytesAhoCorasick(list(found))

    def __call__(self, *texts: bytes) -> set[str]:
        """Return which encodings of which values stand there, and the control if it does."""
        found: set[str] = set()
        for text in texts:
            found |= self._in(text)
            for end in (b"\r", b"\n", b"\\r", b"\\n", b"\ndata: "):
                text = text.replace(end, b"")
            found |= {f"{one} over two lines" for one in self._in(text) - found}
        return found

    def _in(self, text: bytes) -> set[str]:
        hits = self._automaton.find_matches_as_indexes(text, overlapping=True)
        return {self._kinds[pattern] for pattern, _, _ in hits}


# --- servers that tell what they were given


def said(values: Sequence[str]) -> str:
    """Return a text with every value, and the first few in every spelling."""
    forms = (form for value in values[:3] for form in spelled(value))
    return " | ".join((*forms, *values))


def _schema(values: Sequence[str]) -> dict[str, Any]:
    words = {
        "title": values[0],
        "description": said(values),
        "enum": [*values],
        "default": values[0],
    }
    properties = {"text": {"type": "string"}, "do": {"type": "string", **words}, values[0]: words}
    return {"type": "object", "title": said(values), "properties": properties}


def _frame(text: str, **more: object) -> str:
    """Return a whole frame that answers a call with a text."""
    result = {"content": [{"type": "text", "text": text}], **more}
    return '{"jsonrpc":"2.0","id":@ID@,"result":' + json.dumps(result) + "}"


def _progress(text: str) -> Step:
    params = json.dumps({"progress": 1, "message": text})[1:-1]
    frame = (
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":@ID@,'
        + params
        + "}}"
    )
    return do("raw", frame=frame, then="echo")


def telling(values: Sequence[str]) -> dict[str, Step]:
    """Return tools that repeat values in everything that a server can say."""
    text = said(values)
    blocks = [
        {"type": "text", "text": text},
        {
            "type": "resource_link",
            "uri": f"https://x.example/{quote(values[0])}",
            "name": values[0],
        },
        {"type": "resource", "resource": {"uri": "file:///x", "text": text}},
        {"type": "image", "data": base64.b64encode(text.encode()).decode(), "mimeType": "image/x"},
        {"type": "hologram", "data": text},
    ]
    return {
        CONTROL: "echo",
        "said": do("echo", text=text),
        "structured": do("structured", value={"a": text, values[0]: [text, {"b": text}]}),
        "blocks": do("fixed", result={"content": blocks, "_meta": {"x": text}}),
        "long": do("echo", text=text + "x" * 100_000 + text),
        "failed": do("error", text=text),
        "rpc": do("rpc_error", message=text, data={"said": text, values[0]: 1}),
        "rpc_long": do("rpc_error", message=16_000 * "y" + " ".join(values)),
        "notify": do(
            "flood",
            count=2,
            method="notifications/message",
            params={"level": "error", "data": text},
        ),
        "progress": _progress(text),
        "ask": do("server_request", method="elicitation/create", params={"message": text}),
        "unknown": do("raw", frame=_frame(text, resultType=values[0])),
        "garbled": do("raw", frame=_frame(text)[:-3]),
        "odd": do("raw", frame=_frame(text, content=text)),
    }


def telling_server(values: Sequence[str], **more: Any) -> ScriptedServer:
    """Return a server whose lists, instructions and tools repeat values."""
    behaviours = {**telling(values), **more.pop("behaviours", {})}
    text = said(values)
    wordy = " ".join([text] * (20_000 // len(text) + 1))  # more than anybody keeps of one
    tools = [
        tool(name, description=wordy, inputSchema=_schema(values), annotations={"title": text})
        for name in behaviours
    ]
    tools += [tool(values[0]), tool("bad", inputSchema=text), {"name": 7, "description": text}]
    return ScriptedServer(
        behaviours=behaviours, tools=tools, instructions=text, name=values[0], **more
    )


def telling_process(values: Sequence[str], file: Path) -> ScriptedServer:
    """Return the same as a process, which can say more; its script is in no command line."""
    text = said(values)
    wordy = " ".join([text] * (10_000 // len(text) + 1))
    more: dict[str, Step] = {
        "env": "env",
        "stderr": do("stderr", text=wordy),
        "noise": do("noise", text=text),
        "died": do("stderr", text=wordy, then=do("die", code=3)),
        "cut": do("noise", text=text, then=do("die", signal="KILL")),
    }
    return telling_server(values, behaviours=more).saved_to(file)


def telling_http(values: Sequence[str]) -> ScriptedServer:
    """Return the same over HTTP, which has statuses, headers and redirects besides."""
    text, first = said(values), values[0]
    more: dict[str, Step] = {
        f"http_{status}": do(
            "http",
            status=status,
            body=text,
            type="text/plain",
            headers={"X-Echo": first, "WWW-Authenticate": f"Bearer error={first}"},
        )
        for status in (400, 401, 403, 404, 418, 429, 500, 503)
    }
    more["typed"] = do("http", type=f"text/{first}", body=text)
    more["redirect"] = do("redirect", to=f"http://127.0.0.1:9/{quote(first)}?k={quote(first)}")
    more["nowhere"] = do("redirect", to=first)
    return telling_server(values, behaviours=more)


def names_of(values: Iterable[Canary]) -> list[str]:
    return [f"secret://{one.name}" for one in values]
