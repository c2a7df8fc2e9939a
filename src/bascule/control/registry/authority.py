"""What only whoever governs may write: the platform, people, and when approval is asked for.

Operators look after servers and tasks. If they could also take an approval away, or write a person
a wider record, the approval would be theirs. Everything that writes passes here: an edit, an
import, a rollback, an adoption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from bascule.control.registry.errors import NotConfirmed, NotGoverned
from bascule.control.registry.store import Author, Stored, View, Write
from bascule.model.backend import BackendRecord
from bascule.model.kinds import Kind, Record
from bascule.model.platform import PlatformRecord
from bascule.model.server import ApprovalPolicy, Hygiene, ServerRecord
from bascule.model.user import UserRecord
from bascule.policy.loosening import LEAKS, loosened


def refuse_ungoverned(
    view: View, writes: Sequence[Write], by: Author, *, dry_run: bool = False
) -> None:
    """Raise NotGoverned with every field that the author may not write.

    Raise NotConfirmed if the author has to confirm what a write loosens, and has not.
    """
    if by.unconfirmed and not dry_run:
        _refuse_unconfirmed(view, writes, by)
    if by.governs:
        return
    refused: list[tuple[Kind, str, str]] = [
        (write.kind, write.id, field) for write in writes for field in _fields(view, write, by)
    ]
    if refused:
        raise NotGoverned(refused)


def _refuse_unconfirmed(view: View, writes: Sequence[Write], by: Author) -> None:
    needed = [write for write in writes if _loosens(view, write) or any(_fields(view, write, by))]
    if needed:
        raise NotConfirmed([write.key for write in needed])


def _loosens(view: View, write: Write) -> bool:
    """Say whether a write allows more, or has something started or reached that was not before."""
    stored = view.objects.get(write.key)
    old, new = None if stored is None else stored.record, write.record
    if isinstance(new, ServerRecord):
        known = isinstance(old, ServerRecord) and old.connection() == new.connection()
        return not known or bool(loosened(old, new))
    if isinstance(new, BackendRecord):
        return old != new
    return bool(loosened(old, new))


def _fields(view: View, write: Write, by: Author) -> Iterable[str]:
    stored = view.objects.get(write.key)
    old, new = None if stored is None else stored.record, write.record
    if write.kind == "platform":
        return _platform(stored, write)
    if write.kind == "user":
        same = _is_same(stored, write) or _is_own_choice(old, new, by)
        return () if same else ("the record",)
    if write.kind == "server":
        before = old if isinstance(old, ServerRecord) else None
        after = new if isinstance(new, ServerRecord) else None
        return _server(before, after, taken=_is_taken(stored, write))
    return ()


def _platform(stored: Stored | None, write: Write) -> Iterable[str]:
    old = PlatformRecord() if stored is None else stored.record
    new = write.record or PlatformRecord()
    if _is_same(stored, write) or (old == new and stored is None and not write.extra):
        return ()
    names = [name for name in new.__struct_fields__ if getattr(old, name) != getattr(new, name)]
    return names or ("the record",)


def _is_same(stored: Stored | None, write: Write) -> bool:
    """Say whether a write leaves a record as it is, and with its owner."""
    if stored is None or write.record is None:
        return stored is None and write.record is None
    kept = stored.record == write.record and stored.extra == write.extra
    return kept and not _is_taken(stored, write)


def _is_taken(stored: Stored | None, write: Write) -> bool:
    """Say whether a write takes a record from the file that has it."""
    return stored is not None and stored.owner is not None and stored.owner != write.owner


def _is_own_choice(old: Record | None, new: Record | None, by: Author) -> bool:
    """Say whether people change their own choice and nothing else."""
    if not isinstance(old, UserRecord) or not isinstance(new, UserRecord):
        return False
    return old.user_id == by.person and replace(old, own=None) == replace(new, own=None)


def _server(
    before: ServerRecord | None, after: ServerRecord | None, *, taken: bool
) -> Iterator[str]:
    """Name what is changed; a record that is new, gone or taken counts as one with defaults.

    So a server that asks for approval cannot be deleted and written anew without it. A new record
    may ask for approval, which nobody did before.
    """
    old, new = _approval(before), _approval(None if taken else after)
    if old != new and before is not None:
        yield "approval_policy"
    weaker = LEAKS.index(_leaks(None if taken else after)) < LEAKS.index(_leaks(before))
    if weaker:
        yield "hygiene.leaks"


def _approval(record: ServerRecord | None) -> ApprovalPolicy:
    return ApprovalPolicy() if record is None else record.approval_policy


def _leaks(record: ServerRecord | None) -> str:
    return (Hygiene() if record is None else record.hygiene).leaks
