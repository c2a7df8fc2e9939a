"""The two generations of the protocol at one address: which one a request speaks, and as what.

Modern requests carry their version and the client's capabilities themselves, and repeat parts of
the body in headers, which must be equal; what is decided comes from the body alone. Legacy requests
belong to a session, which ``initialize`` opens.
"""

from __future__ import annotations

import base64
import binascii
import re

from bascule import __version__
from bascule.asgi.head import Head
from bascule.doors.gateway.messages import Message, RpcError
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.tool import ToolDescriptor
from bascule.wire.era import LEGACY, META, MODERN
from bascule.wire.http_headers import HeaderPath, argument_at, argument_text, header_paths
from bascule.wire.rpc_codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    UNSUPPORTED_VERSION,
)

VERSION_KEY = META + "protocolVersion"
CAPABILITIES_KEY = META + "clientCapabilities"
CLIENT_KEY = META + "clientInfo"
LOG_LEVEL_KEY = META + "logLevel"
SERVER_INFO: JsonObject = {"name": "bascule", "version": __version__}
#: What every modern result says of who gave it.
SERVER_META: JsonObject = {META + "serverInfo": SERVER_INFO}

_VERSION, _METHOD, _NAME = b"mcp-protocol-version", b"mcp-method", b"mcp-name"
_PARAM = b"mcp-param-"
_BAD_REQUEST = 400
_ENCODED = re.compile(rb"=\?base64\?(.*)\?=")
_DECIMAL = re.compile(r"(-?\d{1,40})(?:\.0{1,40})?")
_MAX_KNOWN = 8192
#: How many bytes the names of a client's capabilities may have together.
MAX_CAPABILITIES = 512
#: Whose name a request repeats in a header, by method.
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def is_modern(head: Head, message: Message) -> bool:
    """Say which generation a message is of: by its own word, else by its header."""
    meta = message.params.get("_meta")
    if is_object(meta) and VERSION_KEY in meta:
        return True
    said = head.fields.get(_VERSION)
    if said is None or said.decode("latin-1") in LEGACY:
        return False
    return message.method != "initialize" or said == MODERN.encode()


def negotiated(wanted: JsonValue) -> str:
    """Return the version that a session is to have: the wanted one, or else the newest."""
    return wanted if isinstance(wanted, str) and wanted in LEGACY else LEGACY[0]


def check_legacy_version(head: Head) -> None:
    """Refuse a header with a version that there is not; one that differs does no harm."""
    said = head.fields.get(_VERSION)
    if said is not None and said.decode("latin-1") not in LEGACY:
        known = ", ".join((MODERN, *LEGACY))
        words = f"MCP-Protocol-Version: not one of {known}"
        raise RpcError(INVALID_REQUEST, words, status=_BAD_REQUEST)


def capabilities_of(head: Head, message: Message) -> frozenset[str]:
    """Check what a modern request says of itself; return what its client can do."""
    meta = message.params.get("_meta")
    if not is_object(meta):
        raise RpcError(INVALID_PARAMS, f"params._meta: needs {VERSION_KEY} and {CAPABILITIES_KEY}")
    for key in (VERSION_KEY, CAPABILITIES_KEY):
        if key not in meta:
            raise RpcError(INVALID_PARAMS, f"params._meta: {key} is missing")
    version, capabilities = meta[VERSION_KEY], meta[CAPABILITIES_KEY]
    _check_headers(head, message, version)
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f"params._meta: {VERSION_KEY} must be a string")
    if version != MODERN:
        data: JsonObject = {"supported": [MODERN], "requested": version}
        words = f"this version of the protocol is not served; supported: {MODERN}"
        raise RpcError(UNSUPPORTED_VERSION, words, data)
    if not is_object(capabilities):
        raise RpcError(INVALID_PARAMS, f"params._meta: {CAPABILITIES_KEY} must be an object")
    return frozenset(capabilities)


def check_notice(head: Head, message: Message) -> None:
    """Refuse a modern notification whose header names another one."""
    _refuse_twice(head)
    said = head.fields.get(_METHOD)
    if said is not None and said != message.method.encode("utf-8", "replace"):
        raise _mismatch("Mcp-Method", "method")


def _check_headers(head: Head, message: Message, version: JsonValue) -> None:
    _refuse_twice(head)
    fields = head.fields
    if not isinstance(version, str) or fields.get(_VERSION) != version.encode("utf-8", "replace"):
        raise _mismatch("MCP-Protocol-Version", f"params._meta[{VERSION_KEY!r}]")
    if fields.get(_METHOD) != message.method.encode("utf-8", "replace"):
        raise _mismatch("Mcp-Method", "method")
    field = _NAMED.get(message.method)
    if field is not None and field in message.params:
        said = decoded(fields.get(_NAME))
        if said is None or said != message.params[field]:
            raise _mismatch("Mcp-Name", f"params.{field}")


def _refuse_twice(head: Head) -> None:
    for name in head.repeated:
        if name in (_VERSION, _METHOD, _NAME) or name.startswith(_PARAM):
            raise RpcError(HEADER_MISMATCH, f"{name.decode('latin-1')}: is given more than once")


def _mismatch(header: str, place: str) -> RpcError:
    return RpcError(HEADER_MISMATCH, f"{header}: is missing, or is not what {place} of the body is")


def decoded(value: bytes | None) -> str | None:
    """Return a header's text; None for none, and for one in base64 that is not exactly that."""
    if value is None:
        return None
    encoded = _ENCODED.fullmatch(value) if value.startswith(b"=") else None
    if encoded is None:
        return value.decode("latin-1") if value.isascii() else None
    try:
        plain = base64.b64decode(encoded[1], validate=True)
        return plain.decode() if base64.b64encode(plain) == encoded[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


class ArgumentHeaders:
    """Compares the arguments that a tool wants in headers with those headers."""

    def __init__(self) -> None:
        #: Which arguments those are, by the digest of a tool's definition.
        self._known: dict[str, tuple[HeaderPath, ...]] = {}

    def check(self, head: Head, tool: ToolDescriptor, arguments: JsonValue) -> None:
        """Raise RpcError where a header and its argument are not both absent, or equal."""
        for header, path in self._paths(tool):
            said = head.fields.get(_PARAM + header.lower().encode("ascii"))
            value = argument_at(arguments, path)
            given = isinstance(value, str | int | float)
            if said is None and not given:
                continue
            text = decoded(said)
            if text is None or not given or not _equal(text, value):
                raise _mismatch(f"Mcp-Param-{header}", f"params.arguments.{'.'.join(path)}")

    def _paths(self, tool: ToolDescriptor) -> tuple[HeaderPath, ...]:
        found = self._known.get(tool.digest)
        if found is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            try:
                found = header_paths(tool.input_schema)
            except ValueError:  # clients drop such a tool's headers
                found = ()
            self._known[tool.digest] = found
        return found


def _equal(said: str, value: str | float) -> bool:
    """Say whether a header says what an argument does; whole numbers are compared as numbers."""
    if said == argument_text(value):
        return True
    number = _DECIMAL.fullmatch(said)
    return number is not None and type(value) in (int, float) and int(number[1]) == value


def capability_names(capabilities: JsonValue) -> tuple[str, ...]:
    """Name what a client says it can do, one level deep: ``elicitation``, ``elicitation.form``.

    No more than there is room for in a session's id.
    """
    found: list[str] = []
    room = MAX_CAPABILITIES
    for name, inner in capabilities.items() if is_object(capabilities) else ():
        for one in (name, *(f"{name}.{part}" for part in (inner if is_object(inner) else ()))):
            room -= len(one.encode("utf-8", "replace")) + 1
            if room < 0:
                return tuple(found)
            found.append(one)
    return tuple(found)
