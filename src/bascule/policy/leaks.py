"""Leak scanning: credentials in arguments and results, found and masked.

One pass of an Aho-Corasick automaton over the UTF-8 text looks for the literals of every rule and
for every known value in all its encodings. Text without a literal, which is nearly all text, costs
nothing more; a rule's pattern is tried only where its literal stands. What was found is told as
rule ids and counts, never as values. Whether to mask, block or ignore is the caller's decision.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import orjson
from ahocorasick_rs import BytesAhoCorasick, Implementation

from bascule.model.json import is_array, is_object
from bascule.policy.known_values import spellings
from bascule.policy.leak_keys import secret_value, sensitive_key
from bascule.policy.leak_rules import RULES, Rule, literal_table

T = TypeVar("T")

KNOWN = "known-value"
KEYED = "assignment"

# The automaton is run over slices of this size, which bounds the memory that hits can take.
_SLICE = 1 << 18
# More hits of one rule than this in one slice: let the regex engine walk instead of Python.
_DENSE = 64
# Masking one finding can complete the boundary of another; hostile text gets this many rounds.
_ROUNDS = 4


# In the place of a rule: a known value, and one whose escapes are escaped in turn where the text
# around it is written as JSON. The second only makes JSON suspect.
_KNOWN_FORM, _WRITTEN_FORM = -1, -2

# The values that a scan found, each with the rule that knew it first. Never leaves this module.
Found = dict[str, str]


class Leak(NamedTuple):
    """Where a credential stands, in characters, and which rule knows it. Never the value."""

    rule: str
    start: int
    end: int


class LeakFinding(NamedTuple):
    """What a scan of a structure found: how many of which rule.

    A value counts once, however often it stands there and whatever rules know it.
    """

    counts: Mapping[str, int]

    @property
    def total(self) -> int:
        """All findings together; nothing was found when it is zero."""
        return sum(self.counts.values())

    def __str__(self) -> str:
        return ", ".join(f"{rule} ({n})" for rule, n in sorted(self.counts.items()))


NOTHING = LeakFinding({})

# Nothing that decides about a credential stands further before it than this.
_CONTEXT = 256


class _Behind(NamedTuple):
    """The end of what was masked already, as it came and as it is shown."""

    raw: str
    masked: str

    def after(self, raw: str, masked: str) -> _Behind:
        return _Behind((self.raw + raw)[-_CONTEXT:], (self.masked + masked)[-_CONTEXT:])


def marker(rule: str) -> str:
    """What stands in the place of a masked credential."""
    return f"[masked:{rule}]"


_MARKERS = " ".join(marker(rule) for rule in chain((KNOWN, KEYED), (rule.id for rule in RULES)))


class Scanner:
    """The rules, and the exact values that the node resolved from references.

    A known value is found in every usual spelling (as it is, URL-encoded, base64 at any alignment,
    hex, JSON-escaped). One too short to be told from ordinary text is left out; ``too_short``
    counts them.
    """

    def __init__(self, known_values: Iterable[str] = ()) -> None:
        forms = [spellings(value) if value not in _MARKERS else () for value in set(known_values)]
        self.too_short = sum(not usable for usable in forms)
        known = dict.fromkeys(form for usable in forms for form in usable)
        written = {orjson.dumps(form).decode()[1:-1]: None for form in known}
        table = [
            *((form, _KNOWN_FORM) for form in known),
            *((form, _WRITTEN_FORM) for form in written if form not in known),
            *literal_table(RULES),
        ]
        literals = [literal.encode() for literal, _ in table]
        self._widths = [len(literal) for literal, _ in table]
        self._rules = [rule for _, rule in table]
        self._overlap = max(map(len, literals)) - 1
        #: How many characters from where it begins anything that is looked for can extend.
        self.reach = max(self._overlap + 1, *(rule.reach for rule in RULES))
        automaton = BytesAhoCorasick(literals, implementation=Implementation.DFA)
        self._find = automaton.find_matches_as_indexes

    def scan(self, text: str) -> tuple[Leak, ...]:
        """Every credential in the text, in order, without overlaps."""
        raw = _utf8(text)
        if len(raw) <= _SLICE:
            hits = self._find(raw, True)  # noqa: FBT003 — positional: this is the hot path
            if not hits:
                return ()
        else:
            hits = None
        found = [leak for batch in self._batches(raw, hits) for leak in self._judge(text, batch)]
        return _merged(found) if found else ()

    def mask(self, text: str) -> tuple[str, int]:
        """The text with every credential replaced by its marker, and how many there were."""
        found: Found = {}
        masked = self._masked(text, found)
        return masked, len(found)

    def mask_slices(self, chunks: Iterable[str], size: int) -> Iterator[tuple[str, LeakFinding]]:
        """Yield a text that comes in chunks, masked, in slices of about this many characters."""
        behind = _Behind("", "")
        waiting = ""
        for chunk in chain(chunks, (None,)):
            waiting += chunk or ""
            while waiting and (chunk is None or len(waiting) >= size + self.reach):
                found: Found = {}
                window = waiting[: size + self.reach]
                masked, taken = self._masked_start(behind, window, size, found)
                yield masked, LeakFinding(Counter(found.values()))
                behind = behind.after(waiting[:taken], masked)
                waiting = waiting[taken:]

    def _masked_start(
        self, behind: _Behind, window: str, size: int, found: Found
    ) -> tuple[str, int]:
        """Mask the first ``size`` characters of a window; return them and how many they were.

        A credential that begins in them is taken whole.
        """
        text, ahead, before = window[:size], window[size:], behind.raw
        for _ in range(_ROUNDS):
            here = len(before)
            whole = before + text + ahead
            leaks = [
                Leak(leak.rule, max(0, leak.start - here), leak.end - here)
                for leak in self.scan(whole)
                if leak.end > here and leak.start < here + len(text)
            ]
            if not leaks and before == behind.masked:
                break
            for leak in leaks:
                found.setdefault(whole[here + leak.start : here + leak.end], leak.rule)
            across = max(0, leaks[-1].end - len(text)) if leaks else 0
            text = "".join(_pieces(text + ahead[:across], leaks))
            ahead, before = ahead[across:], behind.masked
        return text, len(window) - len(ahead)

    def suspect(self, raw: bytes) -> bool:
        """Whether serialised JSON of our own making may hold a credential.

        False is certain; True asks for a full scan. Not for bytes that someone else serialised:
        these may spell any letter as an escape.
        """
        if len(raw) <= _SLICE:
            return bool(self._find(raw, True))  # noqa: FBT003 - positional: this is the hot path
        return any(self._hits(raw))

    def scan_json(self, value: object) -> LeakFinding:
        """What a JSON value (arguments, content blocks, structured content) holds."""
        return self._walk(value)[1]

    def mask_json(self, value: T) -> tuple[T, LeakFinding]:
        """The value with credentials masked (the same object when there are none)."""
        return self._walk(value)

    def _walk(self, value: T) -> tuple[T, LeakFinding]:
        try:
            clear = not self.suspect(orjson.dumps(value))
        except (TypeError, ValueError):
            clear = False  # integers beyond 64 bits, lone surrogates: read every string instead
        if clear:
            return value, NOTHING
        found: Found = {}
        masked = self._masked_value(value, found)
        return (masked, LeakFinding(Counter(found.values()))) if found else (value, NOTHING)

    def _masked_value(self, value: object, found: Found) -> Any:
        if isinstance(value, str):
            return self._masked(value, found)
        if is_object(value):
            return {
                self._masked(key, found): self._masked_member(key, member, found)
                for key, member in value.items()
            }
        if is_array(value):
            return [self._masked_value(item, found) for item in value]
        return value

    def _masked_member(self, key: str, value: object, found: Found) -> object:
        if not isinstance(value, str):
            return self._masked_value(value, found)
        masked = self._masked(value, found)
        if masked is value and sensitive_key(key) and secret_value(key, value, quoted=True):
            found.setdefault(value, KEYED)
            return marker(KEYED)
        return masked

    def _masked(self, text: str, found: Found) -> str:
        for _ in range(_ROUNDS):
            leaks = self.scan(text)
            if not leaks:
                break
            for leak in leaks:
                found.setdefault(text[leak.start : leak.end], leak.rule)
            text = "".join(_pieces(text, leaks))
        return text

    def _hits(self, raw: bytes) -> Iterator[list[tuple[int, int, int]]]:
        for begin in range(0, len(raw), _SLICE):
            since = max(0, begin - self._overlap)
            batch = self._find(memoryview(raw)[since : begin + _SLICE], True)  # noqa: FBT003
            if batch:
                yield [(p, s + since, e + since) for p, s, e in batch if e + since > begin]

    def _batches(
        self, raw: bytes, hits: list[tuple[int, int, int]] | None
    ) -> Iterator[dict[int, list[tuple[int, int]]]]:
        """Hits as rule → (start, width), in characters, one batch per slice."""
        at = _CharacterIndex(raw)
        for batch in self._hits(raw) if hits is None else (hits,):
            batch.sort(key=_by_start)
            grouped: dict[int, list[tuple[int, int]]] = {}
            for pattern, start, _ in batch:
                place = (at(start), self._widths[pattern])
                grouped.setdefault(self._rules[pattern], []).append(place)
            yield grouped

    def _judge(self, text: str, batch: dict[int, list[tuple[int, int]]]) -> Iterator[Leak]:
        for index, places in batch.items():
            if index == _KNOWN_FORM:
                yield from (Leak(KNOWN, at, at + width) for at, width in places)
            elif index >= 0:
                yield from _matches(RULES[index], text, [at for at, _ in places])


def _by_start(hit: tuple[int, int, int]) -> int:
    return hit[1]


def _matches(rule: Rule, text: str, starts: list[int]) -> Iterator[Leak]:
    if len(starts) > _DENSE:
        found: Iterable[re.Match[str] | None] = rule.pattern.finditer(
            text, starts[0], starts[-1] + rule.reach
        )
    else:
        found = (rule.pattern.match(text, at) for at in starts)
    for match in found:
        if match is not None and (rule.judge is None or rule.judge(match)):
            start, end = match.span(rule.group)
            yield Leak(rule.id, start - rule.behind, end)


def _merged(found: list[Leak]) -> tuple[Leak, ...]:
    """Overlapping findings become one, named by the most specific rule among them."""
    found.sort(key=lambda leak: leak.start)
    merged: list[Leak] = []
    for leak in found:
        if merged and leak.start < merged[-1].end:
            last = merged[-1]
            rule = min(last.rule, leak.rule, key=_RANK.__getitem__)
            merged[-1] = Leak(rule, last.start, max(last.end, leak.end))
        else:
            merged.append(leak)
    return tuple(merged)


_RANK = {KNOWN: -1, **{rule.id: rank for rank, rule in enumerate(RULES)}}


def _pieces(text: str, leaks: Iterable[Leak]) -> Iterator[str]:
    done = 0
    for leak in leaks:
        yield text[done : leak.start]
        yield marker(leak.rule)
        done = leak.end
    yield text[done:]


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


class _CharacterIndex:
    """Byte offsets, each near the one before, as character offsets."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._ascii = raw.isascii()
        self._byte = self._character = 0

    def __call__(self, offset: int) -> int:
        if self._ascii:
            return offset
        self._character += self._characters(self._byte, offset)
        self._character -= self._characters(offset, self._byte)
        self._byte = offset
        return self._character

    def _characters(self, start: int, end: int) -> int:
        return len(self._raw[start:end].decode("utf-8", "surrogatepass"))


_DEFAULT = Scanner()
scan = _DEFAULT.scan
mask = _DEFAULT.mask
scan_json = _DEFAULT.scan_json
mask_json = _DEFAULT.mask_json
