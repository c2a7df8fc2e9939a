"""One change of a record without retyping the rest: read, change, write if nobody was faster.

A write carries the revision that was read; when another writer came first, the change is made
again on what is there now. Below: the registry's client. Above: ``allowing.py``, ``using.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bascule.client.http import ApiError
from bascule.client.registry import Plain, RegistryClient, Written
from bascule.model.json import is_array
from bascule.model.snapshot import Kind

_ATTEMPTS = 10
Change = Callable[[Plain], Mapping[str, Any] | None]


async def edit(
    registry: RegistryClient,
    kind: Kind,
    key: str,
    change: Change,
    *,
    expected_revision: int | None = None,
) -> Written:
    """Write the fields that ``change`` makes of a record; None: it is as it should be."""
    for left in reversed(range(_ATTEMPTS)):
        record = await registry.get(kind, key)
        revision: int = record["revision"] if expected_revision is None else expected_revision
        fields = change(record)
        if fields is None:
            return Written(int(record["revision"]), record)
        try:
            return await registry.patch(kind, key, fields, expected_revision=revision)
        except ApiError as error:
            if error.code != "conflict" or expected_revision is not None or not left:
                raise
    raise AssertionError("the last attempt raises")


def words_of(value: Any) -> list[str]:
    """Return a list of texts of a record; what is none is empty."""
    return [str(item) for item in value] if is_array(value) else []
