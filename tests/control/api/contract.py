"""Every answer that a test gets must be one that the committed description promises."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import jsonschema_rs

from bascule.asgi.guard import GuardedRoute
from bascule.asgi.reference import DOCUMENT
from tests.asgi.caller import Answer


@cache
def described() -> Any:
    return json.loads(DOCUMENT.read_text(encoding="utf-8"))


def refuse_undescribed(
    routes: Iterable[GuardedRoute],
    method: str,
    path: str,
    answer: Answer,
    document: Any = None,
) -> None:
    """Fail on an answer that the description does not have, by default the committed one."""
    document = document or described()
    place = next(
        (r.path_format for r in routes if method in r.verbs and r.path_regex.match(path)), None
    )
    if place is None:
        return  # no such address or method: the guard's answer, and no operation's
    responses = document["paths"][place][method.lower()]["responses"]
    assert str(answer.status) in responses, f"{method} {place} does not promise {answer.status}"
    content = _resolved(responses[str(answer.status)], document).get("content", {})
    lines = "application/jsonl" in content  # of which there may be none
    assert lines or bool(content) == bool(answer.body)
    if "application/json" in content and answer.header("content-type") == "application/json":
        schema = content["application/json"]["schema"]
        _validator(schema, document["components"]["schemas"]).validate(answer.json)


def _resolved(response: dict[str, Any], document: Any) -> dict[str, Any]:
    name = response.get("$ref", "").rpartition("/")[2]
    return document["components"]["responses"][name] if name else response


def _validator(schema: dict[str, Any], named: Any) -> Any:
    """Return what checks a body: made once, since that takes far longer than the check."""
    key = id(named), json.dumps(schema)
    if key not in _VALIDATORS:
        closed = {"allOf": [schema], "components": {"schemas": named}}
        _VALIDATORS[key] = named, jsonschema_rs.validator_for(closed)
    return _VALIDATORS[key][1]


#: By the schemas that there are names for, which stay alive beside, and by the schema itself.
_VALIDATORS: dict[tuple[int, str], tuple[Any, Any]] = {}
