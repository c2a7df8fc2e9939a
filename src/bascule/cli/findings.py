"""What a check before the start found: one line, and how to mend it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Verdict = Literal["ok", "warning", "failed"]


class Finding(Struct, frozen=True, kw_only=True):
    """What one check came to; ``mend`` says what to do unless all is well."""

    check: str
    verdict: Verdict
    words: str
    mend: str | None = None


class Checker(Struct, frozen=True):
    """Words the findings of one check."""

    check: str

    def ok(self, words: str) -> Finding:
        return Finding(check=self.check, verdict="ok", words=words)

    def warning(self, words: str, mend: str) -> Finding:
        return Finding(check=self.check, verdict="warning", words=words, mend=mend)

    def failed(self, words: str, mend: str) -> Finding:
        return Finding(check=self.check, verdict="failed", words=words, mend=mend)
