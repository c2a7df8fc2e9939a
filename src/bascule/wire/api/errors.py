"""The one shape of an error: ``{"error": {"code", "message", "details"}}``."""

from __future__ import annotations

from msgspec import Struct

from bascule.model.json import JsonObject


class ErrorWords(Struct, frozen=True):
    """What went wrong: a stable code for machines, a message for people, and details."""

    code: str
    message: str
    details: JsonObject = {}


class Error(Struct, frozen=True):
    """The answer to a request that was refused or failed."""

    error: ErrorWords
