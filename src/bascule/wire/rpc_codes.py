"""The codes of JSON-RPC errors: those of JSON-RPC itself, and those that MCP adds."""

from __future__ import annotations

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
#: What has no code of its own; the error's ``data`` says what it is.
SERVER_ERROR = -32000
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
#: A call that its own caller cancelled; nobody waits for the answer.
CANCELLED = -32800
