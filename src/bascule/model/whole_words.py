"""Texts of a peer, cut between words.

Half a credential is masked by nobody, so a word that a cut would fall into is left out.
"""

from __future__ import annotations


def beginning(text: str, most: int) -> str:
    """Return the whole words among the first ``most`` characters, and a mark if there are more."""
    if len(text) <= most:
        return text
    return f"{_without_last_word(text[: most + 1])}…"


def ending(text: str) -> str:
    """Return a text that was cut at its beginning, without its first word."""
    return _without_last_word(text[::-1])[::-1]


def _without_last_word(text: str) -> str:
    for place in range(len(text) - 1, -1, -1):
        if text[place].isspace():
            return text[: place + 1]
    return ""
