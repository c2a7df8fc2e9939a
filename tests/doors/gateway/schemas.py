"""Whether a message is valid against the schema of its version of the protocol, either way.

One message, by who sends it; an answer needs the method that it answers::

    check(request, "2025-11-25", sender="client")
    check(response, "2025-11-25", sender="server", answers="tools/call")

A whole exchange: a ``Dialogue`` knows which request an answer is for, and goes on in the version
that ``initialize`` settles on. A recording client calls it with every message, as parsed::

    dialogue = Dialogue("2025-11-25")
    dialogue.client(request)
    dialogue.server(response)

Either raises ``AssertionError`` naming the place. What a server sends may have no field that only
another version knows; clients may say more. Unknown fields are fine both ways.

The schemas are those of the official conformance suite. It has none of 2024-11-05, which is
2025-03-26 without what that version added. A result is read by its ``resultType``, an error by
its code where the version describes it. An error may lack its id in all versions: it is the body
of a response that the transport refuses.
"""

from __future__ import annotations

import binascii
import copy
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

import jsonschema_rs

from checks.npm import NODE
from tests.conformance import suite

Message = Mapping[str, Any]
Sender = Literal["client", "server"]

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
_EXTRACT = suite.ROOT / "tests" / "doors" / "gateway" / "schemas.mjs"
#: What these have in one version alone is on no result of another.
_OF_ANY_RESULT = ("Result", "CacheableResult", "InputRequiredResult", "CreateTaskResult")
_SECONDS = 60.0
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class Dialogue:
    """What a client and a server say to each other, every message checked."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._asked: dict[tuple[Sender, str | int | None], str] = {}

    def client(self, message: Message) -> None:
        self._heard(message, "client")

    def server(self, message: Message) -> None:
        self._heard(message, "server")

    def _heard(self, message: Message, sender: Sender) -> None:
        other: Sender = "server" if sender == "client" else "client"
        method, id = message.get("method"), message.get("id")
        if "result" in message:
            answered = self._asked.get((other, id))
            assert answered is not None, f"nobody asked for the answer {id!r}"
            if answered == "initialize":
                self.version = message["result"].get("protocolVersion", self.version)
            check(message, self.version, sender=sender, answers=answered)
            return
        check(message, self.version, sender=sender)
        if method is not None and id is not None:
            self._asked[sender, id] = method


def check(message: Message, version: str, *, sender: Sender, answers: str | None = None) -> None:
    """Raise AssertionError unless a message of this sender is valid in this version.

    ``answers`` is the method of the request that a result is for.
    """
    for definition, value in _readings(message, version, sender, answers):
        found = next(_validator(version, definition, sender == "server").iter_errors(value), None)
        if found is not None:
            place = "/".join(map(str, found.instance_path)) or "the message"
            raise AssertionError(
                f"{version}, {sender}: no valid {definition}: {place}: {found.message[:500]}"
            )


def check_as(definition: str, value: object, version: str) -> None:
    """Raise AssertionError unless a part of what a server sends is valid: a ``Tool``, say."""
    found = next(_validator(version, definition, True).iter_errors(value), None)
    assert found is None, f"{version}: no valid {definition}: {found and found.message[:500]}"


def _readings(
    message: Message, version: str, sender: Sender, answers: str | None
) -> Iterator[tuple[str, Any]]:
    """Yield the definitions that a message has to fit, and what of it has to."""
    method = message.get("method")
    if "error" in message:
        yield from _error_readings(message, version)
    elif method is None:
        assert answers is not None, "say which method this answers"
        yield _named(version, "JSONRPCResultResponse", "JSONRPCResponse"), message
        yield _result_of(answers, message.get("result"), version), message.get("result")
    elif "id" in message:
        yield "JSONRPCRequest", message
        yield _spoken(version, f"{sender.title()}Request", method), message
    else:
        yield "JSONRPCNotification", message
        yield _spoken(version, f"{sender.title()}Notification", method), message


def _error_readings(message: Message, version: str) -> Iterator[tuple[str, Any]]:
    whole = message if "id" in message else {**message, "id": 0}
    yield _named(version, "JSONRPCErrorResponse", "JSONRPCError"), whole
    code = message["error"].get("code")
    for name, definition in _definitions(version).items():
        for part in definition.get("properties", {}).get("error", {}).get("allOf", ()):
            if part.get("properties", {}).get("code", {}).get("const", "none") == code:
                yield name, whole


def _result_of(method: str, result: Any, version: str) -> str:
    if version >= "2026-07-28":
        kind = result.get("resultType")
        assert kind in ("complete", "input_required"), f"no valid resultType: {kind!r}"
        if kind == "input_required":
            return "InputRequiredResult"
    request = _spoken(version, "ClientRequest", method, "ServerRequest")
    own = request.removesuffix("Request") + "Result"
    return own if own in _definitions(version) else "EmptyResult"


def _spoken(version: str, *words: str) -> str:
    """Return the definition of a method among those of a sender, or of either one."""
    method = next(word for word in words if word[0].islower())
    for union in words:
        for name in _members(version, union):
            definition = _definitions(version)[name]
            if definition["properties"]["method"].get("const") == method:
                return name
    raise AssertionError(f"{version} has no {method} among {words[0]}")


def _members(version: str, union: str) -> list[str]:
    definition = _definitions(version).get(union, {"anyOf": []})
    if "anyOf" not in definition:
        return [union]
    return [part["$ref"].rpartition("/")[2] for part in definition["anyOf"]]


def _named(version: str, *names: str) -> str:
    return next(name for name in names if name in _definitions(version))


@cache
def _validator(version: str, definition: str, closed: bool) -> jsonschema_rs.Validator:
    key = _key(version)
    every = _closed(version) if closed else _definitions(version)
    assert definition in every, f"{version} has no {definition}"
    schema = {
        "$schema": _schemas()[version]["$schema"],
        "allOf": [{"$ref": f"#/{key}/{definition}"}],
        key: every,
    }
    formats = {"uri": _is_uri, "byte": _is_base64}
    return jsonschema_rs.validator_for(schema, formats=formats, validate_formats=True)


def _is_uri(text: str) -> bool:
    """Ask for a scheme, as clients do; they take characters that a URI should have escaped."""
    return _SCHEME.match(text) is not None


def _is_base64(text: str) -> bool:
    try:
        binascii.a2b_base64("".join(text.split()), strict_mode=True)
    except ValueError:
        return False
    return True


@cache
def _closed(version: str) -> dict[str, Any]:
    """The definitions of a version, each closed to the fields that it has in others alone."""
    every = copy.deepcopy(_definitions(version))
    for name, definition in every.items():
        fields = definition.get("properties", {})
        if "method" in fields:
            continue  # a frame, which only newer schemas describe whole
        parts = [name, *_OF_ANY_RESULT] if name.endswith("Result") and fields else [name]
        known = _fields(version, parts)
        for other in VERSIONS:
            fields |= dict.fromkeys(_fields(other, parts) - known, False)
    return every


def _fields(version: str, names: list[str]) -> set[str]:
    definitions = _definitions(version)
    return {field for name in names for field in definitions.get(name, {}).get("properties", ())}


def _definitions(version: str) -> dict[str, Any]:
    return _schemas()[version][_key(version)]


def _key(version: str) -> str:
    return "$defs" if "$defs" in _schemas()[version] else "definitions"


@cache
def _schemas() -> dict[str, Any]:
    suite.install()
    words = (NODE, _EXTRACT, suite.SUITE)
    told = subprocess.run(words, check=True, capture_output=True, timeout=_SECONDS)
    schemas = json.loads(told.stdout)
    return {"2024-11-05": _first(schemas["2025-03-26"]), **schemas}


def _first(second: dict[str, Any]) -> dict[str, Any]:
    """The schema of 2024-11-05: the next one without what it added."""
    first = copy.deepcopy(second)
    definitions = first["definitions"]
    definitions["AudioContent"] = {"not": {}}
    del definitions["Tool"]["properties"]["annotations"]
    del definitions["ServerCapabilities"]["properties"]["completions"]
    definitions["ProgressNotification"]["properties"]["params"]["properties"]["message"] = False
    return first
