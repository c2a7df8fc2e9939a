"""Anchors in their order, and whether each can be believed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bascule.audit.anchors import Anchor, is_signed, key_id, line_digest, parsed
from bascule.audit.findings import KeyFrom, Problems


class AnchorWalk:
    """Each anchor is signed, by the key whose turn it is, and names the line before it.

    The given key may sign from the start, or follow older ones: then the chain of lines that it
    signed the end of vouches for those before.
    """

    def __init__(
        self, lines: Iterable[bytes], given: str | None, ledger_id: str | None = None
    ) -> None:
        self._lines = lines
        self.given = given
        self._ledger_id = ledger_id
        self._turn: str | None = None
        self._number = 0
        self.count = self.torn = 0
        self._last: Anchor | None = None
        self._given_seen = False

    def checked(self, problems: Problems) -> Iterator[Anchor]:
        """Yield the anchors that can be believed."""
        before: str | None = None
        for line in map(bytes.strip, self._lines):
            anchor = parsed(line)
            if anchor is None:
                before = None if self._skip(line, problems) else before
                continue
            if before is not None and anchor.before != before:
                problems.add(anchor.number, "its anchor does not follow the anchor before")
            before = line_digest(line)
            if words := self._unbelievable(anchor):
                problems.add(anchor.number, f"its anchor {words}")
                continue
            self._take(anchor)
            yield anchor

    def finish(self, problems: Problems) -> bool:
        """Say whether the key that was given, if one was, vouches for the anchors."""
        if self.given is None or self._given_seen:
            return True
        problems.add(None, f"no anchor is signed by the given key, {self.key_id}")
        return False

    def _skip(self, line: bytes, problems: Problems) -> bool:
        """Take a line that is no anchor; say whether one may have stood in its place.

        Half a line was never acknowledged, and what follows it does not name it.
        """
        if line.endswith(b"}"):
            problems.add(None, "a line of the anchors is not an anchor")
            return True
        self.torn += bool(line)
        return False

    def _unbelievable(self, anchor: Anchor) -> str | None:
        if self._ledger_id not in (None, anchor.ledger_id):
            return "is of another ledger"
        if not is_signed(anchor):
            return "has a wrong signature"
        if self._turn not in (None, anchor.public_key):
            return f"is signed by another key, {anchor.key_id}"
        if anchor.number < self._number:
            return "stands after one for a later row"
        return None

    def _take(self, anchor: Anchor) -> None:
        self.count += 1
        self._last = anchor
        self._number = anchor.number
        self._ledger_id = anchor.ledger_id
        self._turn = anchor.next_key or anchor.public_key
        self._given_seen |= anchor.public_key == self.given

    @property
    def key_from(self) -> KeyFrom | None:
        if self.given is not None:
            return "given"
        return None if self._last is None else "ledger"

    @property
    def key_id(self) -> str | None:
        if self.given is not None:
            return key_id(self.given)
        return None if self._last is None else self._last.key_id
