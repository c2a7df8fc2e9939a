"""``/api/v1/me``: people read their own record, and narrow it by a choice of their own.

What they choose stands beside what an administrator set, as ``own``, and both hold. So what
somebody switches off can be switched on again, and never more than that.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.json import json_response, read_object
from bascule.asgi.parameters import only_parameters
from bascule.asgi.speaker import speaker
from bascule.auth.identity import Principal
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Author
from bascule.errors import InvalidRecord, SessionRefused, refuse_any
from bascule.model.json import JsonObject, is_array
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy
from bascule.model.user import UserFilters, UserRecord
from bascule.policy.compose import compose
from bascule.wire.api.me import Me, Refusal
from bascule.wire.collector import unknown_field
from bascule.wire.merge_patch import merge_patch


class Myself:
    """The endpoints of whoever asks."""

    def __init__(self, service: RegistryService) -> None:
        self._service = service

    async def get(self, request: Request) -> Response:
        """Say for whom this token speaks, and what their record is."""
        only_parameters(request)
        return json_response(_shown(self._service.snapshot(), speaker(request.scope)))

    async def patch(self, request: Request) -> Response:
        """Change one's own choice: null takes a part of it back, what is not named stays."""
        only_parameters(request)
        asking, given = speaker(request.scope), await read_object(request)
        record = _record_of(asking, self._service.snapshot())
        refuse_any([*_unknown(given), *_outside(record, given)])
        by = _author(asking, record.user_id)
        chosen = given if merge_patch(_plain(record.own), given) else None
        try:
            await self._service.patch("user", record.user_id, {"own": chosen}, by)
        except InvalidRecord as error:
            raise InvalidRecord([one.removeprefix("own.") for one in error.problems]) from error
        return json_response(_shown(self._service.snapshot(), asking))


def _author(asking: Principal, person: str) -> Author:
    note = f"own choice of {person}"
    return Author(asking.name, note, trusted=False, governs=False, person=person)


def _record_of(asking: Principal, registry: Snapshot) -> UserRecord:
    """Return the record that a request may change; raise Refused where there is none."""
    if asking.person is None:
        raise Refused("forbidden", "this token speaks for nobody: a person's own token is needed")
    found = registry.users.get(asking.person)
    if found is None:
        raise Refused("not_found", f"there is no user {asking.person!r} in the registry")
    if not found.enabled:
        raise Refused("forbidden", f"user {asking.person!r} is disabled")
    return found


def _plain(own: UserFilters | None) -> JsonObject:
    return {} if own is None else to_builtins(own)


def _unknown(given: JsonObject) -> Iterator[str]:
    known = UserFilters.__struct_fields__
    for name in given:
        if name in UserRecord.__struct_fields__ and name not in known:
            yield f"{name}: only an administrator may change it"
        elif name not in known:
            yield f"{name}: {unknown_field(name, known)}"


def _outside(record: UserRecord, given: JsonObject) -> Iterator[str]:
    """Name servers that an administrator did not enable: to choose them would do nothing."""
    chosen, enabled = given.get("enabled_server_ids"), record.enabled_server_ids
    for index, server in enumerate(chosen if is_array(chosen) else ()):
        if enabled is not None and server not in enabled:
            yield (
                f"enabled_server_ids[{index}]: {server!r} is not among the servers that an "
                f"administrator enabled ({', '.join(enabled) or 'none'})"
            )


def _shown(registry: Snapshot, asking: Principal) -> Me:
    record = None if asking.person is None else registry.users.get(asking.person)
    return Me(
        person=asking.person,
        task=asking.task_id,
        groups=() if record is None else record.groups,
        record=record,
        refused=refusal(registry, asking),
    )


def refusal(registry: Snapshot, asking: Principal) -> Refusal | None:
    """Say why sessions of whoever asks are refused, if they are."""
    named = asking.task_id
    task = None if named is None else registry.tasks.get(named, TaskPolicy())
    try:
        compose(registry, task, person=asking.person, acting=asking.acts_for_users)
    except SessionRefused as refused:
        return Refusal(refused.reason, str(refused))
    return None
