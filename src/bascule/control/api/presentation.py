"""A record as the API shows it to somebody: masked, with defaults, and what is known beside it."""

from __future__ import annotations

import msgspec

from bascule.auth.identity import Principal
from bascule.clock import rfc3339
from bascule.control.registry.extra_fields import shown_extra
from bascule.control.registry.masks import masked
from bascule.control.registry.status import CombinedStatus
from bascule.control.registry.store import Stored
from bascule.control.registry.task_forms import both_forms
from bascule.model.json import JsonObject
from bascule.model.task import TaskRecord
from bascule.wire.api.records import Beside, Plain
from bascule.wire.defaults import with_defaults
from bascule.wire.merge_patch import merge_patch
from bascule.wire.records import encode


def shown(
    stored: Stored,
    asking: Principal,
    status: CombinedStatus | None = None,
    *,
    defaults: bool = True,
) -> Plain:
    """Return an object for somebody; ``status`` is for servers, where it is known.

    Fields that a record leaves at their defaults are shown too, unless ``defaults`` is false.
    """
    return shown_as(stored, status, literals=may_read_literals(asking), defaults=defaults)


def may_read_literals(asking: Principal) -> bool:
    """Say whether literal values are shown to somebody: to whoever starts servers."""
    return asking.may("registry:read_secrets")


def shown_as(
    stored: Stored,
    status: CombinedStatus | None = None,
    *,
    literals: bool = False,
    defaults: bool = True,
) -> Plain:
    """Return an object; literal values are masked unless they are asked for."""
    plain: JsonObject = encode(stored.record) if literals else masked(stored.kind, stored.record)
    if defaults:
        plain = with_defaults(plain, stored.record)
    if stored.extra:
        plain = merge_patch(plain, stored.extra if literals else shown_extra(stored))
    if isinstance(stored.record, TaskRecord):
        plain = both_forms(plain, stored.record)
    if status is not None:
        plain = {**plain, "status": msgspec.to_builtins(status)}
    return {**plain, **msgspec.structs.asdict(beside(stored))}


def beside(stored: Stored) -> Beside:
    """Return what is shown of an object besides its record."""
    return Beside(
        revision=stored.revision, updated_at=rfc3339(stored.updated_at), owner=stored.owner
    )
