"""The backends of the settings, as records of the registry.

They are owned by ``settings``, so every face shows where they come from and where to change them.
What was adopted or made in the registry stays as it is; what a file defines steps back, since a
flag stands above files.
"""

from __future__ import annotations

from collections.abc import Sequence

from bascule.control.registry.plan import Draft
from bascule.control.registry.service import RegistryService, Written
from bascule.control.registry.store import Author, View, Write
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
