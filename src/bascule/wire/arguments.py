"""The arguments of a call: a mapping, or the JSON text of one as a model wrote it."""

from __future__ import annotations

from collections.abc import Mapping

from bascule.model.json import JsonObject, is_object
from bascule.wire.strict_json import StrictJsonError, loads

Arguments = Mapping[str, object] | str | bytes | None


class NotAnObject(StrictJsonError):
    """Arguments that can be read and are something else than an object."""


def read_arguments(given: Arguments) -> JsonObject:
    """Return the object; nothing at all is an empty one. Raise StrictJsonError.

    Half of a surrogate pair is refused like everything else that strict JSON cannot say.
    """
    if given is None:
        return {}
    value: object = given.encode("utf-8", "surrogatepass") if isinstance(given, str) else given
    if isinstance(value, bytes):
        value = loads(value) if value.strip() else {}
    if not is_object(value):
        raise NotAnObject("must be a JSON object")
    return value
