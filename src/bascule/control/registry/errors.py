"""What the registry refuses, with stable codes.

    BasculeError
    └── RegistryError
        ├── NotFound         there is no such record
        ├── AlreadyExists    there is one already
        ├── Conflict         the record is not at the revision the writer expected
        ├── NotGoverned      a write changes policy, which takes the permission policy:write
        ├── NotAccepted      an operator's write would give a credential a new target
        ├── NotOwned         no file owns the record: there is nothing to adopt
        ├── NotProposed      nothing waits to be accepted
        ├── OwnedByFile      a file owns the record: edit the file, or adopt the record
        ├── Compacted        the revision is older than what is kept: list anew
        ├── StoreChanged     the position is not in this store's history: list anew
        ├── FutureRevision   the revision has not happened yet
        └── HeadMoved        another process wrote first; the service plans again

``InvalidRecord`` and ``StoreUnavailable`` come from below. How each looks at a face is the table
in ``bascule.wire.faults``. Every one carries ``details`` for machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice

from bascule.errors import BasculeError
from bascule.model.json import JsonObject, JsonValue
from bascule.model.kinds import Kind
from bascule.model.snapshot import Position
from bascule.policy.pairs import Pair, shown

#: A name that is not there is compared with so many that are: it costs, and blocks the loop.
_COMPARED = 500


class RegistryError(BasculeError):
    """Root of what the registry refuses."""

    def __init__(self, message: str, **details: JsonValue) -> None:
        self.details: JsonObject = details
        super().__init__(message)


class NotFound(RegistryError):
    """There is no such record."""

    code = "not_found"

    def __init__(self, kind: Kind, key: str, known: Iterable[tuple[Kind, str]] = ()) -> None:
        ids = islice((name for of, name in known if of == kind), _COMPARED)
        near = get_close_matches(key, list(ids), n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        super().__init__(f"there is no {kind} {key!r}{meant}", kind=kind, id=key)


class AlreadyExists(RegistryError):
    """A record that was to be created is there already."""

    code = "already_exists"

    def __init__(self, kind: Kind, key: str, revision: int) -> None:
        message = f"{kind} {key!r} exists already"
        super().__init__(message, kind=kind, id=key, current_revision=revision)


class Conflict(RegistryError):
    """A record is not at the revision the writer expected; ``current`` is 0 if it is not there."""

    code = "conflict"

    def __init__(self, kind: Kind, key: str, *, expected: int, current: int) -> None:
        self.expected = expected
        self.current = current
        now = f"is at revision {current}" if current else "does not exist"
        super().__init__(
            f"{kind} {key!r} {now}, not at {expected}; read it again",
            kind=kind,
            id=key,
            expected_revision=expected,
            current_revision=current,
        )


class NotGoverned(RegistryError):
    """A write changes what only an administrator may change. Nothing was written."""

    code = "forbidden"

    def __init__(self, fields: Sequence[tuple[Kind, str, str]]) -> None:
        text = "; ".join(f"{kind} {key!r}: {field}" for kind, key, field in fields)
        rows = [{"kind": kind, "id": key, "field": field} for kind, key, field in fields]
        needs = "needs the permission policy:write, which administrators have"
        super().__init__(f"{text}: {needs}", permission="policy:write", fields=rows)


class NotConfirmed(RegistryError):
    """A page's write loosens something, and nobody has confirmed it. Nothing was written."""

    code = "confirmation_required"

    def __init__(self, records: Sequence[tuple[Kind, str]]) -> None:
        super().__init__(", ".join(f"{kind} {key!r}" for kind, key in records))


class NotAccepted(RegistryError):
    """An operator's write would send a credential where no administrator sent it."""

    code = "pair_not_accepted"

    def __init__(self, refused: Mapping[tuple[Kind, str], Iterable[Pair]], *, kept: bool) -> None:
        pairs = [(kind, key, pair) for (kind, key), own in refused.items() for pair in sorted(own)]
        text = "; ".join(f"{kind} {key!r}: {pair}" for kind, key, pair in pairs)
        rows = [{"kind": kind, "id": key, **shown(pair)} for kind, key, pair in pairs]
        ways = [f"bascule {kind}s accept {key}" for kind, key in refused]
        way = f", who lets it in with: {', '.join(ways)}" if kept else ""
        super().__init__(
            f"a credential goes where no administrator has sent it: {text}; this takes an "
            f"administrator{way}",
            pairs=rows,
        )


class NotProposed(RegistryError):
    """Nothing waits to be accepted for this record, or not what was looked at."""

    code = "not_found"

    def __init__(self, kind: Kind, key: str) -> None:
        gone = "it may have been replaced or withdrawn"
        super().__init__(f"no such proposal for {kind} {key!r}; {gone}", kind=kind, id=key)


class NotOwned(RegistryError):
    """A record that was to be adopted is edited here already."""

    code = "wrong_state"

    def __init__(self, kind: Kind, key: str) -> None:
        message = f"no file owns {kind} {key!r}: it is edited here already"
        super().__init__(message, kind=kind, id=key)


class OwnedByFile(RegistryError):
    """Files own these records, so they are changed there, or adopted first."""

    code = "owned_by_file"

    def __init__(self, owned: Sequence[tuple[Kind, str, str]]) -> None:
        text = "; ".join(f"{kind} {key!r} is owned by {owner}" for kind, key, owner in owned)
        rows = [{"kind": kind, "id": key, "owner": owner} for kind, key, owner in owned]
        super().__init__(f"{text}: change the file, or adopt the record first", owned=rows)


class Compacted(RegistryError):
    """What came after that revision is no longer kept in full."""

    code = "compacted"

    def __init__(self, revision: int, floor: int) -> None:
        self.revision = revision
        self.floor = floor
        super().__init__(
            f"revision {revision} is older than what is kept (from {floor} on); list anew",
            revision=revision,
            compacted_revision=floor,
        )


class StoreChanged(RegistryError):
    """The position is not in this store's history: another store, or another copy of it.

    ``case`` names what happened: ``another_store``, ``emptied``, ``older_copy`` or ``other_copy``.
    """

    code = "store_changed"

    def __init__(self, given: Position, current: Position) -> None:
        self.case, words = _what_happened(given, current)
        super().__init__(
            f"{words}; list anew",
            case=self.case,
            store_id=current.store_id,
            revision=current.revision,
            given_store_id=given.store_id,
            given_revision=given.revision,
        )


def _what_happened(given: Position, current: Position) -> tuple[str, str]:
    """Return a name and words for how a store differs from where somebody saw it."""
    store, now, then = current.store_id, current.revision, given.revision
    another = not given.is_of(store)
    if now == 0 and then > 0:
        place = f"store {given.store_id}" if another else "it"
        return "emptied", f"store {store} is empty, and {place} was at revision {then}"
    if another:
        return "another_store", f"this is store {store}, not {given.store_id}"
    if now < then:
        words = f"store {store} is back at revision {now} and was at {then}"
        return "older_copy", f"{words}: an older copy has taken its place"
    words = f"revision {then} of store {store} is not the one that was seen"
    return "other_copy", f"{words}: a copy that was written to elsewhere has taken its place"


class FutureRevision(RegistryError):
    """That revision has not happened yet."""

    code = "future_revision"

    def __init__(self, revision: int, head: int) -> None:
        message = f"revision {revision} has not happened yet; the newest is {head}"
        super().__init__(message, revision=revision, head=head)


class HeadMoved(RegistryError):
    """The registry is not at the revision that a write was planned on."""

    code = "conflict"

    def __init__(self, base: int, head: int) -> None:
        self.head = head
        super().__init__(f"planned on revision {base}, the registry is at {head}", head=head)
