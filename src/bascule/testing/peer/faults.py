"""What no server should do: each entry is one ``kind`` of misbehaviour.

Broken frames are kept as text, as
they go over the wire: ``@ID@`` is the id of the request, ``@OTHER@`` one that was never used,
``@RESULT@`` a good result. All of these may also stand at the start, before any request.
"""

from __future__ import annotations

import json
import os
import signal

from bascule.testing.peer.frames import Call, Server, pour, wait_for_ever, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bascule.testing.peer.frames import Behaviour, Json

MEGABYTE = 1_000_000
OTHER_ID_DISTANCE = 1_000_000

TEXT = '{"jsonrpc":"2.0","id":@ID@,"result":{"content":[{"type":"text","text":"%s"}]}}'
GOOD = '{"jsonrpc":"2.0","id":@ID@,"result":@RESULT@}'
BROKEN: dict[str, str] = {
    "not_json": "this is not JSON",
    "cut_json": '{"jsonrpc":"2.0","id":@ID@,"result":{"content":[',
    "trailing_text": GOOD + " and more",
    "not_an_object": '[1,"two",null]',
    "batch": "[" + GOOD + "]",
    "bad_utf8": TEXT % "\udcff\udcfe",
    "lone_surrogate": TEXT % "\\ud800",
    "duplicate_keys": '{"jsonrpc":"2.0","id":@ID@,"result":@RESULT@,"result":{"content":[]}}',
    "nan": '{"jsonrpc":"2.0","id":@ID@,"result":{"content":[],"structuredContent":{"n":NaN}}}',
    "infinity": '{"jsonrpc":"2.0","id":@ID@,"result":{"content":[],"structuredContent":-Infinity}}',
    "wrong_id": '{"jsonrpc":"2.0","id":@OTHER@,"result":@RESULT@}',
    "foreign_id": '{"jsonrpc":"2.0","id":"a stranger","result":@RESULT@}',
    "string_id": '{"jsonrpc":"2.0","id":"@ID@","result":@RESULT@}',
    "float_id": '{"jsonrpc":"2.0","id":@ID@.0,"result":@RESULT@}',
    "list_id": '{"jsonrpc":"2.0","id":[@ID@],"result":@RESULT@}',
    "null_id": '{"jsonrpc":"2.0","id":null,"result":@RESULT@}',
    "no_id": '{"jsonrpc":"2.0","result":@RESULT@}',
    "duplicate_reply": GOOD + "\n" + GOOD,
    "result_and_error": (
        '{"jsonrpc":"2.0","id":@ID@,"result":@RESULT@,"error":{"code":-32603,"message":"both"}}'
    ),
    "neither_result_nor_error": '{"jsonrpc":"2.0","id":@ID@}',
    "result_not_an_object": '{"jsonrpc":"2.0","id":@ID@,"result":"text"}',
    "error_not_an_object": '{"jsonrpc":"2.0","id":@ID@,"error":"text"}',
    "no_version": '{"id":@ID@,"result":@RESULT@}',
    "content_not_a_list": '{"jsonrpc":"2.0","id":@ID@,"result":{"content":"text"}}',
    "unknown_result_type": '{"jsonrpc":"2.0","id":@ID@,"result":{"resultType":"riddle"}}',
    "carriage_return": GOOD + "\r",
    "blank_lines": "\n\n" + GOOD + "\n",
}


def fill(server: Server, call: Call, template: str) -> bytes:
    """The template as bytes; what UTF-8 cannot hold is written as it stands."""
    other = call.id + OTHER_ID_DISTANCE if isinstance(call.id, int) else "other"
    body = {"content": [said(call)]}
    values = {
        "@ID@": json.dumps(call.id),
        "@OTHER@": json.dumps(other),
        "@TOKEN@": json.dumps(call.meta.get("progressToken")),
        "@RESULT@": json.dumps(server.dressed(call, body)),
    }
    for token, value in values.items():
        template = template.replace(token, value)
    return template.encode("utf-8", "surrogateescape") + b"\n"


def said(call: Call) -> Json:
    return {"type": "text", "text": str(call.arguments.get("text", ""))}


def flood_frame(spec: Json) -> bytes:
    params: Json = spec.get("params", {"level": "info", "data": "flood"})
    method = spec.get("method", "notifications/message")
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


def broken(template: str) -> Behaviour:
    """A behaviour that writes this frame, then goes on if the step has a ``then``."""

    def behave(server: Server, call: Call, spec: Json) -> None:
        server.emit(call, fill(server, call, template) * spec.get("times", 1))
        go_on_if_told(server, call, spec)

    return behave


def raw(server: Server, call: Call, spec: Json) -> None:
    """Write the ``frame`` of the script, tokens replaced."""
    broken(spec["frame"])(server, call, spec)


def go_on_if_told(server: Server, call: Call, spec: Json) -> None:
    """A fault answers nothing more unless the script says so."""
    if "then" in spec:
        server.perform(call, spec["then"])
    else:
        server.settled(call)


def deep(server: Server, call: Call, spec: Json) -> None:
    """A result nested ``depth`` deep."""
    depth = spec.get("depth", 200_000)
    nest = "[" * depth + "]" * depth
    frame = GOOD.replace("@RESULT@", '{"content":[],"nest":' + nest + "}")
    server.emit(call, fill(server, call, frame))
    go_on_if_told(server, call, spec)


def huge_line(server: Server, call: Call, spec: Json) -> None:
    """One valid frame of ``bytes`` bytes, written in pieces."""
    before, _, after = fill(server, call, TEXT).partition(b"%s")
    write(before)
    pour(b"x", spec.get("bytes", 100 * MEGABYTE) - len(before) - len(after))
    write(after)
    go_on_if_told(server, call, spec)


def no_newline(server: Server, call: Call, spec: Json) -> None:
    """``bytes`` bytes without a newline, then silence; ends when the input is closed."""
    pour(b"y", spec.get("bytes", 400 * MEGABYTE))


def noise(server: Server, call: Call, spec: Json) -> None:
    """``times`` lines of ``text`` that are no frames, then go on."""
    server.emit(call, (spec.get("text", "starting up...") + "\n").encode() * spec.get("times", 1))
    server.go_on(call, spec)


def flood(server: Server, call: Call, spec: Json) -> None:
    """``count`` notifications (of ``method``) as fast as they are taken, then go on."""
    frame, count = flood_frame(spec) + b"\n", spec.get("count", 100_000)
    for start in range(0, count, 500):
        write(frame * min(500, count - start))
    server.go_on(call, spec)


def die(server: Server, call: Call, spec: Json) -> None:
    """End now: by ``signal`` (a name such as KILL), or with the exit ``code``."""
    if "signal" in spec:
        os.kill(os.getpid(), getattr(signal, "SIG" + spec["signal"]))
        wait_for_ever()
    os._exit(spec.get("code", 1))


def close_output(server: Server, call: Call, spec: Json) -> None:
    """Close stdout and live on."""
    os.close(1)
    wait_for_ever()


def stop_reading(server: Server, call: Call, spec: Json) -> None:
    """Never read again; with ``then``, answer this call first."""
    go_on_if_told(server, call, spec)
    wait_for_ever()


def unknown_block(server: Server, call: Call, spec: Json) -> None:
    """A result with a content block of a type nobody knows."""
    odd = {"type": "hologram", "depth": 3, "data": "AAAA"}
    server.complete(call, {"content": [said(call), odd]})


def unknown_fields(server: Server, call: Call, spec: Json) -> None:
    """A result with fields of the vendor's own, inside and outside the blocks."""
    block = {**said(call), "vendorBlock": [1]}
    server.complete(call, {"content": [block], "vendorResult": {"kept": True}})


FAULTS: dict[str, Behaviour] = {
    **{kind: broken(template) for kind, template in BROKEN.items()},
    "close_output": close_output,
    "deep": deep,
    "die": die,
    "flood": flood,
    "huge_line": huge_line,
    "no_newline": no_newline,
    "noise": noise,
    "raw": raw,
    "stop_reading": stop_reading,
    "unknown_block": unknown_block,
    "unknown_fields": unknown_fields,
}
