"""JSON as editors write it: with comments, commas after the last item, and a byte order mark.

Clients such as VS Code keep their files so. Only what stands outside strings is touched, and with
spaces in its place, so that a parser's complaint names the right line and column.
"""

from __future__ import annotations

import re

_MARK = b"\xef\xbb\xbf"
#: A string, which is kept, or a comment; what does not end is left for the parser to refuse.
_COMMENTS = re.compile(rb'"(?:[^"\\]|\\.)*"|//[^\n\r]*|/\*.*?\*/', re.DOTALL)
_COMMAS = re.compile(rb'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
_VISIBLE = re.compile(rb"[^\n\r]")


def plain_json(text: bytes) -> bytes:
    """Return a text without what JSON itself does not allow."""
    text = text.removeprefix(_MARK)
    for pattern in (_COMMENTS, _COMMAS):
        text = pattern.sub(_blanked, text)
    return text


def _blanked(found: re.Match[bytes]) -> bytes:
    return found[0] if found[0].startswith(b'"') else _VISIBLE.sub(b" ", found[0])
