"""The backends of the settings, as records of the registry.

They are owned by ``settings``, so every face shows where they come from and where to change them.
What was adopted or made in the registry stays as it is; what a file defines steps back, since a
flag stands above files.
"""

from __future__ import annotations

from collections.abc import Sequence

from bascule.control.registry.plan import Draft
from bascule.control.registry.service import RegistryService, Written
from bascule.control.registry.store import Author, Stored, View, Write
from bascule.model.backend import BackendRecord

OWNER = "settings"
BY = Author(OWNER, "from the settings of the process")


async def publish_backends(
    service: RegistryService, backends: Sequence[BackendRecord], *, dry_run: bool = False
) -> Written:
    """Write the backends of the settings, and delete what earlier settings left behind.

    ``problems`` of the result name those whose word does not count, and why.
    """
    return await service.transact(
        lambda view: _plan(view, backends), BY, as_owner=True, dry_run=dry_run
    )


def backends_trouble(view: View, backends: Sequence[BackendRecord], replica: str) -> str | None:
    """Say which backends of a replica's settings do not count, if others of its kind do."""
    given = {backend.name: backend for backend in backends}
    stored = {one.id: one for one in view.of_kind("backend")}
    others = {name for name, one in stored.items() if one.owner == OWNER} - set(given)
    differing = others | {name for name in given if _is_replaced(given[name], stored.get(name))}
    if not differing:
        return None
    return (
        f"the settings of replica {replica!r} do not have the backends that are in the registry "
        f"({', '.join(sorted(differing))}): a replica with other settings started later; give all "
        "the same backends, and start those again whose settings were wrong"
    )


def _is_replaced(given: BackendRecord, stored: Stored | None) -> bool:
    """Say whether others than people put something else in the place of a backend."""
    if stored is None:
        return True
    return stored.owner is not None and (stored.owner, stored.record) != (OWNER, given)


def _plan(view: View, backends: Sequence[BackendRecord]) -> Draft:
    given = {backend.name: backend for backend in backends}
    stored = {one.id: one for one in view.of_kind("backend")}
    gone = [name for name, one in stored.items() if one.owner == OWNER and name not in given]
    kept = [name for name in given if name in stored and stored[name].owner is None]
    writes = [Write(kind="backend", id=name, record=None) for name in gone]
    writes += [
        Write(kind="backend", id=name, record=backend, owner=OWNER)
        for name, backend in given.items()
        if name not in kept
    ]
    problems = [
        f"backend {name!r} is edited in the registry; the settings' word does not count"
        for name in kept
    ]
    return Draft(tuple(writes), (), tuple(problems))
