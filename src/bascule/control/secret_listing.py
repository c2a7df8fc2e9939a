"""What is shown of secrets beside the records that use them, and who they can be bound to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bascule.clock import rfc3339
from bascule.control.secret_store import Binding, Row
from bascule.model.backend import BackendRecord
from bascule.model.secret_use import SecretUse, UserKind, backend_use, server_use
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.policy.pairs import pairs_of
from bascule.wire.api.secrets import BindingShown, BindingState, SecretShown, SecretUserShown

_SCHEME = "secret://"


def use_in(records: Snapshot, kind: UserKind, user: str) -> SecretUse | None:
    """Return a server or backend as its record stands; None if there is none."""
    if kind == "server":
        server = records.servers.get(user)
        return None if server is None else server_use(server)
    backend = records.backends.get(user)
    return None if backend is None else backend_use(backend)


def secret_names(record: ServerRecord | BackendRecord) -> frozenset[str]:
    """Return the secrets that a record refers to."""
    references = (pair.reference for pair in pairs_of(record))
    return frozenset(r.removeprefix(_SCHEME) for r in references if r.startswith(_SCHEME))


def listed(
    rows: Iterable[Row], bindings: Iterable[tuple[Binding, bool]], records: Snapshot
) -> tuple[SecretShown, ...]:
    """Return what is shown of secrets; of each binding it is known whether it is genuine."""
    users = [(user, names) for user, names in _users(records) if names]
    bound = [(one.name, _shown(one, records, genuine=genuine)) for one, genuine in bindings]
    return tuple(
        SecretShown(
            name=row.name,
            version=row.version,
            created_at=rfc3339(row.made_at),
            changed_at=rfc3339(row.changed_at),
            changed_by=row.changed_by,
            bound=tuple(shown for name, shown in bound if name == row.name),
            used_by=tuple(user for user, names in users if row.name in names),
        )
        for row in rows
    )


def _users(records: Snapshot) -> Iterator[tuple[SecretUserShown, frozenset[str]]]:
    for key, server in records.servers.items():
        yield SecretUserShown(kind="server", id=key), secret_names(server)
    for key, backend in records.backends.items():
        yield SecretUserShown(kind="backend", id=key), secret_names(backend)


def _shown(bound: Binding, records: Snapshot, *, genuine: bool) -> BindingShown:
    now = use_in(records, bound.kind, bound.id)
    state: BindingState = "bound" if genuine and now == bound.use else "changed"
    return BindingShown(
        kind=bound.kind,
        id=bound.id,
        state="missing" if now is None else state,
        bound_at=rfc3339(bound.bound_at),
        bound_by=bound.bound_by,
    )
