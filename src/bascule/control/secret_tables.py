"""What is kept of secrets, as a transaction sees it, and the same in memory.

Of a secret the newest version is kept, and of one that was removed its last number, so that no
number comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from bascule.clock import Clock
from bascule.control.envelope import Envelope, Place
from bascule.model.secret_use import SecretUse, UserKind

T = TypeVar("T")


class Head(Struct, frozen=True):
    """Which store it is, how often its outer key was changed, and which key it has now."""

    store_id: str
    epoch: int
    key_id: str | None

    def place(self, name: str, version: int) -> Place:
        """Return where an envelope of this store belongs."""
        return Place(self.store_id, self.epoch, name, version)


class Row(Struct, frozen=True):
    """A secret as it is kept."""

    name: str
    version: int
    made_at: float
    changed_at: float
    changed_by: str
    wrapped: bytes
    sealed: bytes

    @property
    def envelope(self) -> Envelope:
        """Return what is sealed."""
        return Envelope(self.wrapped, self.sealed)


class Binding(Struct, frozen=True):
    """Who may be given a secret, by whose word; ``signature`` is the outer key's."""

    name: str
    kind: UserKind
    id: str
    digest: str
    bound_at: float
    bound_by: str
    signature: bytes

    @property
    def use(self) -> SecretUse:
        """Return whom it is bound to, as its record stood then."""
        return SecretUse(self.kind, self.id, self.digest)


class SecretTables(Protocol):
    """The tables of a store inside one transaction."""

    def head(self) -> Head: ...

    def advance(self, key_id: str) -> Head:
        """Begin the next epoch, with this outer key."""
        ...

    def count(self) -> int: ...

    def rows(self) -> Iterable[Row]:
        """Return all secrets, by name."""
        ...

    def row(self, name: str) -> Row | None: ...

    def bindings(self) -> Iterable[Binding]:
        """Return all bindings, by name, kind and id."""
        ...

    def binding(self, name: str, kind: UserKind, user: str) -> Binding | None: ...

    def next_version(self, name: str) -> int:
        """Return the number of the next version; one that was removed goes on where it ended."""
        ...

    def put(self, new: Row) -> None:
        """Keep a version in the place of the one before; bindings stay."""
        ...

    def put_wrapped(self, name: str, wrapped: bytes) -> None:
        """Keep a data key that was wrapped again."""
        ...

    def put_binding(self, new: Binding) -> None: ...

    def remove_binding(self, name: str, kind: UserKind, user: str) -> bool: ...

    def remove(self, name: str) -> bool:
        """Forget a secret and its bindings, but for the number of its last version."""
        ...


class SecretStore(Protocol):
    """Where sealed secrets are kept."""

    #: What messages call it.
    where: str
    #: How to begin anew where its key is lost, in words.
    anew: str
    #: Whether several replicas have it, which share one outer key from their first start on.
    shared: bool

    async def read(self, work: Callable[[SecretTables], T]) -> T:
        """Look at one state of the tables."""
        ...

    async def write(self, work: Callable[[SecretTables], T]) -> T:
        """Run a whole transaction; what it did is durable on return."""
        ...

    async def has_moved(self) -> bool:
        """Say whether others have written what was not seen yet; it is seen now."""
        ...

    async def others(self) -> int:
        """Return how many other replicas run now."""
        ...

    async def forget_log(self) -> None:
        """Have no copy of what was overwritten, where that is in one's hands."""
        ...

    def state(self) -> object:
        """Return what changes with every write that is seen; None while that is unsure."""
        ...

    async def pause(self, seen: object, clock: Clock) -> None:
        """Wait until it is worth asking for the state again, of which this was seen."""
        ...


def marks(tables: SecretTables) -> Mapping[str, object]:
    """Return for each secret what is another once its value or its bindings are."""
    found: dict[str, list[object]] = {row.name: [row.version] for row in tables.rows()}
    for bound in tables.bindings():
        found.setdefault(bound.name, []).append(bound.use)
    return found


class MemoryTables:
    """All tables of a store in memory."""

    def __init__(self, head: Head) -> None:
        self.now = head
        self.secrets: dict[str, Row] = {}
        self.bound: dict[tuple[str, str, str], Binding] = {}
        self.removed: dict[str, int] = {}

    def copy(self) -> MemoryTables:
        """Return tables that may be changed while others look at these."""
        other = MemoryTables(self.now)
        other.secrets, other.bound = dict(self.secrets), dict(self.bound)
        other.removed = dict(self.removed)
        return other

    def head(self) -> Head:
        return self.now

    def advance(self, key_id: str) -> Head:
        """Begin the next epoch, with this outer key."""
        self.now = replace(self.now, epoch=self.now.epoch + 1, key_id=key_id)
        return self.now

    def count(self) -> int:
        return len(self.secrets)

    def rows(self) -> list[Row]:
        """Return all secrets, by name."""
        return [self.secrets[name] for name in sorted(self.secrets)]

    def row(self, name: str) -> Row | None:
        return self.secrets.get(name)

    def bindings(self) -> list[Binding]:
        """Return all bindings, by name, kind and id."""
        return [self.bound[key] for key in sorted(self.bound)]

    def binding(self, name: str, kind: UserKind, user: str) -> Binding | None:
        return self.bound.get((name, kind, user))

    def next_version(self, name: str) -> int:
        """Return the number of the next version; one that was removed goes on where it ended."""
        row = self.secrets.get(name)
        return max(self.removed.get(name, 0), 0 if row is None else row.version) + 1

    def put(self, new: Row) -> None:
        """Keep a version in the place of the one before; bindings stay."""
        old = self.secrets.get(new.name)
        self.secrets[new.name] = new if old is None else replace(new, made_at=old.made_at)

    def put_wrapped(self, name: str, wrapped: bytes) -> None:
        """Keep a data key that was wrapped again."""
        self.secrets[name] = replace(self.secrets[name], wrapped=wrapped)

    def put_binding(self, new: Binding) -> None:
        self.bound[new.name, new.kind, new.id] = new

    def remove_binding(self, name: str, kind: UserKind, user: str) -> bool:
        return self.bound.pop((name, kind, user), None) is not None

    def remove(self, name: str) -> bool:
        """Forget a secret and its bindings, but for the number of its last version."""
        row = self.secrets.pop(name, None)
        if row is None:
            return False
        self.removed[name] = row.version
        self.bound = {key: bound for key, bound in self.bound.items() if key[0] != name}
        return True
