"""The ``sandbox`` of a record: its words, and what its fields must be to one another."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bascule.model.json import JsonValue
from bascule.model.platform import SandboxFloor
from bascule.model.sandbox import LEVELS, SHORT_FORMS, Level, Sandbox, contradictions
from bascule.model.server import ServerRecord
from bascule.wire.collector import Findings

#: What may stand for a whole table: a short form, or a level with the defaults of the rest.
SANDBOX_WORDS: tuple[str, ...] = (*SHORT_FORMS, *LEVELS)
_LEVELS: Mapping[str, Level] = {level: level for level in LEVELS}


def sandbox_of(word: str) -> Sandbox | None:
    """Return what a word stands for; None for one that means nothing."""
    if word in SHORT_FORMS:
        return SHORT_FORMS[word]
    level = _LEVELS.get(word)
    return None if level is None else Sandbox(level=level)


def sandbox_table(word: str, findings: Findings) -> JsonValue:
    """Return a word as the table that it stands for; note it as a problem if it means nothing."""
    sandbox = sandbox_of(word)
    if sandbox is None:
        choices = ", ".join(SANDBOX_WORDS)
        findings.problem("sandbox", f"{word[:60]!r} is not one of: {choices}; or give a table")
        return {}
    return {"level": sandbox.level, **msgspec.to_builtins(sandbox)}


def check_sandbox(record: ServerRecord, findings: Findings) -> None:
    """Check the sandbox of a server against itself, and against how the server is reached."""
    sandbox = record.sandbox
    if sandbox is None:
        return
    if record.transport != "stdio":
        findings.advise("sandbox", f"is not used by transport {record.transport!r}")
    for field, problem in contradictions(sandbox):
        findings.problem(f"sandbox.{field}", problem)


def check_floor(floor: SandboxFloor, findings: Findings) -> None:
    """Check that a floor is one that a level can give."""
    for field, problem in contradictions(floor.least):
        findings.problem(f"sandbox.{field}", problem)
