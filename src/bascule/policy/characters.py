"""Characters that say one thing to a person and another to a machine.

Terminal control can repaint a screen, bidirectional controls reorder what is read, and invisible
characters carry instructions that only a model sees. ``neutralise`` makes text fit for a model:
control characters become visible escapes, invisible ones are removed, and both are counted.
``render_safe`` makes text fit for a terminal, a log or an approver: nothing is removed, everything
unusual is shown as an escape. ``render_exact`` is for whoever must not take one text for another.

Ordinary text stays as it is: line ends and tabs, joined emoji, variation selectors after their
base, the joiners that Arabic and Indic scripts need, and for a model the directional marks that
belong to their text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from bascule.policy.directions import belonging

Kind = Literal["control", "bidi", "invisible", "tag", "variation", "surrogate"]


class Neutralised(NamedTuple):
    """The text, and how many characters of which kind were made harmless."""

    text: str
    counts: Mapping[Kind, int]


CLEAN: Mapping[Kind, int] = MappingProxyType({})

_ORDINARY = bytes(range(0x20, 0x7F)) + b"\n\t\r"

# Letters and marks by their category, yet drawn as nothing.
_BLANKS = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"
_JOINERS = "\u200c\u200d"
_RANGES: dict[Kind, str] = {
    "control": "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f",
    "bidi": "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069",
    "invisible": "\u00ad\u180e\u200b-\u200d\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"
    f"{_BLANKS}\U000110bd\U000110cd\U0001bca0-\U0001bca3\U0001d173-\U0001d17a",
    "tag": "\U000e0000-\U000e007f",
    "variation": "\ufe00-\ufe0f\U000e0080-\U000e0fff",
    "surrogate": "\ud800-\udfff",
}
_SUSPECTS = "".join(_RANGES.values())
_SUSPECT = re.compile(f"[{_SUSPECTS}]")
_KINDS: list[tuple[Kind, re.Pattern[str]]] = [
    (kind, re.compile(f"[{ranges}]")) for kind, ranges in _RANGES.items()
]
_DIRECTIONAL = re.compile(f"[{_RANGES['bidi']}]")
# Writing JSON escapes control characters: by their number, or these two by a letter.
_MAY_BE_CONTROL = re.compile(rb"\\[ubf]")
# How far back a quiet place is looked for.
_SEARCHED = 256
_ESCAPED: frozenset[Kind] = frozenset({"control", "surrogate"})

# A joiner belongs between two letters of these scripts, or between two pictures of an emoji.
_SCRIPT = re.compile("[\u0590-\u109f\u1780-\u17b3\u17b6-\u18af]")
_PICTURE = re.compile("[\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff]")


def neutralise(text: str) -> Neutralised:
    """Text for a model: control characters escaped, hidden characters removed, both counted."""
    if _plain(text):
        return Neutralised(text, CLEAN)
    counts: Counter[Kind] = Counter()
    kept = belonging(text) if _DIRECTIONAL.search(text) else frozenset[int]()
    safe = _SUSPECT.sub(lambda match: _harmless(match, counts, kept), text)
    return Neutralised(safe, counts) if counts else Neutralised(text, CLEAN)


def seam(text: str, start: int, end: int) -> int:
    """Where to part a long text so that each part may be neutralised on its own.

    After the last line end before ``end``, or else between characters that are not suspect; a line
    too long for either is parted where it is, which can cost a mark, a joiner or a selector there.
    """
    if end >= len(text):
        return len(text)
    line = text.rfind("\n", (start + end) // 2, end) + 1
    if line:
        return line
    quiet = range(end, max(start, end - _SEARCHED), -1)
    return next((at for at in quiet if not _SUSPECT.search(text, at - 2, at + 2)), end)


def _plain(text: str) -> bool:
    """Whether there is nothing to do. Most text is plain, so this is the path that counts."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return False
    # Deleting the ordinary ASCII bytes is far cheaper than a regular expression over all of it.
    rest = raw.translate(None, _ORDINARY)
    return not rest or not _SUSPECT.search(rest.decode())


def is_plain_json(written: bytes) -> bool:
    """Say whether JSON of our own making surely has nothing to neutralise in any of its strings."""
    if _MAY_BE_CONTROL.search(written):
        return False
    rest = written.translate(None, _ORDINARY)
    return not rest or not _SUSPECT.search(rest.decode())


def is_plain(ascii_text: bytes) -> bool:
    """Say whether an ASCII text has nothing but printing characters and line ends."""
    return not ascii_text.translate(None, _ORDINARY)


def _harmless(match: re.Match[str], counts: Counter[Kind], kept: frozenset[int]) -> str:
    if match.start() in kept or _in_its_place(match):
        return match[0]
    kind: Kind = next(kind for kind, pattern in _KINDS if pattern.match(match[0]))
    counts[kind] += 1
    return escape(match[0]) if kind in _ESCAPED else ""


def _in_its_place(match: re.Match[str]) -> bool:
    """Whether this joiner or variation selector is part of ordinary writing."""
    text, at = match.string, match.start()
    if match[0] in _JOINERS:
        return _joins(text, at)
    return "\ufe00" <= match[0] <= "\ufe0f" and _follows_a_base(text, at)


def _follows_a_base(text: str, at: int) -> bool:
    return at > 0 and not text[at - 1].isspace() and not _SUSPECT.match(text, at - 1)


def _joins(text: str, at: int) -> bool:
    if at == 0:
        return False
    if _SCRIPT.match(text, at - 1):
        return _SCRIPT.match(text, at + 1) is not None and not _SUSPECT.match(text, at + 1)
    before = at - 2 if text[at - 1] == "\ufe0f" else at - 1
    pictures = before >= 0 and _PICTURE.match(text, before) and _PICTURE.match(text, at + 1)
    return bool(pictures) and not any(_SUSPECT.match(text, n) for n in (before, at + 1))


# A lone carriage return overwrites the line, separators break it, private use shows anything.
_ALSO_SHOWN = "\r\u2028\u2029\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
_SHOWN = re.compile(f"[{_SUSPECTS}{_ALSO_SHOWN}]")
_SHOWN_ON_ONE_LINE = re.compile(f"[\n\t{_SUSPECTS}{_ALSO_SHOWN}]")


def render_safe(text: str, *, one_line: bool = False) -> str:
    """Text for people and logs: whatever could deceive is shown as an escape.

    ``one_line`` shows line ends and tabs too, so that one entry cannot pose as two.
    """
    if text.isascii() and text.isprintable():
        return text
    return (_SHOWN_ON_ONE_LINE if one_line else _SHOWN).sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    return match[0] if _in_its_place(match) else escape(match[0])


#: What ``render_safe`` leaves where it belongs, and what looks like a space and is none.
_SPACES = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000"
_LOOKALIKE = re.compile(f"[{_JOINERS}\ufe00-\ufe0f{_SPACES}]")


def render_exact(text: str) -> str:
    """Text for somebody who approves it: no two texts look the same for what cannot be seen.

    As ``render_safe``, and joiners, selectors and unusual spaces are shown wherever they stand.
    """
    safe = render_safe(text)
    return safe if safe.isascii() else _LOOKALIKE.sub(lambda match: escape(match[0]), safe)


_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape(character: str) -> str:
    r"""One character as its escape: ``\x1b``, ``\u202e``, ``\U000e0041``."""
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
