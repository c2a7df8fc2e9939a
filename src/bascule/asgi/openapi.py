"""Routes described in OpenAPI 3.1: addresses, permissions and summaries are read off the routes.

What a route takes and gives is an ``Exchange``, written where the route is known; a route without
one fails. Below: ``guard.py`` and the table of errors. Above: each face describes its own routes,
and a composition root joins them to the description of its process.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from bascule.asgi.errors import status_of
from bascule.asgi.guard import OPEN, GuardedRoute

Schema: TypeAlias = dict[str, Any]
#: What each route takes and gives, by method and path.
Exchanges: TypeAlias = Iterable[tuple[tuple[str, str], "Exchange"]]

REFS = "#/components/schemas/"
TEXT: Schema = {"type": "string"}
NULLABLE: Schema = {"type": ["string", "null"]}
#: What any request may be refused for, with and without a token, and with a body.
ANYBODY = ("invalid_request", "unauthenticated", "origin_refused", "host_refused")
READ = (*ANYBODY, "forbidden")
WRITE = (*READ, "invalid_json", "body_too_large", "unsupported_media_type", "request_timeout")
_MEANINGS = {200: "done", 201: "created", 304: "unchanged"}


class Exchange(Struct, frozen=True, kw_only=True):
    """What one route takes and gives: ``answers`` by status, ``refusals`` by code.

    ``summary`` is for an endpoint that has no docstring; ``fallible`` are the statuses at which
    the answer itself comes, as an outcome that is no success.
    """

    answers: Mapping[int, Schema]
    refusals: tuple[str, ...] = READ
    body: Schema | None = None
    query: Mapping[str, Schema] = {}
    headers: Mapping[str, Schema] = {}
    needed: tuple[str, ...] = ()
    media_type: str = "application/json"
    tagged: bool = False
    summary: str | None = None
    fallible: tuple[int, ...] = ()


def document(
    routes: Iterable[GuardedRoute], exchanges: Exchanges, schemas: Mapping[str, Schema]
) -> dict[str, Any]:
    """Describe routes; raise KeyError for one that nobody described."""
    known = dict(exchanges)
    described: list[Exchange] = []
    paths: dict[str, dict[str, Any]] = {}
    for one in routes:
        for method in sorted(one.verbs):
            exchange = known[method, one.path]
            described.append(exchange)
            paths.setdefault(one.path, {})[method.lower()] = _operation(one, method, exchange)
    error = object_of(code=TEXT, message=TEXT, details={"type": "object"})
    return {
        "openapi": "3.1.0",
        "info": {"title": "Bascule", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": object_of(error=error)},
            "responses": _refusals(described),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


# --- schemas


def object_of(**properties: Schema) -> Schema:
    """Return an object that has all of these."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def list_of(item: Schema) -> Schema:
    """Return a list of any length."""
    return {"type": "array", "items": item}


def ref(kind: type[Any] | str) -> Schema:
    """Return a reference to a schema by its class or its name."""
    return {"$ref": REFS + (kind if isinstance(kind, str) else kind.__name__)}


def _refusals(exchanges: Iterable[Exchange]) -> dict[str, Any]:
    """Describe every refusal once, by its status."""
    codes: dict[int, set[str]] = {}
    for exchange in exchanges:
        for code in exchange.refusals:
            codes.setdefault(status_of(code), set()).add(code)
    content = {"application/json": {"schema": ref("Error")}}
    return {
        f"Refused{status}": {"description": ", ".join(sorted(named)), "content": content}
        for status, named in sorted(codes.items())
    }


# --- operations


def _operation(one: GuardedRoute, method: str, exchange: Exchange) -> dict[str, Any]:
    summary = exchange.summary or (inspect.getdoc(one.endpoint) or "").partition("\n")[0]
    operation: dict[str, Any] = {
        "operationId": _name(method, one.path),
        "summary": summary,
        "parameters": list(_parameters(one, exchange)),
        "responses": dict(_responses(exchange)),
    }
    if one.access != OPEN:
        operation |= {"security": [{"token": []}], "x-permission": one.access}
    if exchange.body is not None:
        content = {media_type: {"schema": exchange.body} for media_type in one.body.media_types}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _name(method: str, path: str) -> str:
    words = path.replace("{", "").replace("}", "").strip("/").split("/")
    return "_".join([method.lower(), *words])


def _parameters(one: GuardedRoute, exchange: Exchange) -> Iterator[dict[str, Any]]:
    for name in one.param_convertors:
        yield {"name": name, "in": "path", "required": True, "schema": TEXT}
    for place, named in (("query", exchange.query), ("header", exchange.headers)):
        for name, schema in named.items():
            needed = name in exchange.needed
            yield {"name": name, "in": place, "required": needed, "schema": schema}


def _responses(exchange: Exchange) -> Iterator[tuple[str, dict[str, Any]]]:
    for status, schema in exchange.answers.items():
        answer: dict[str, Any] = {"description": _MEANINGS[status]}
        if schema:
            answer["content"] = {exchange.media_type: {"schema": schema}}
        if exchange.tagged:
            answer["headers"] = {"ETag": {"schema": TEXT}}
        yield str(status), answer
    refused = {status_of(code) for code in exchange.refusals}
    for status in sorted({*refused, *exchange.fallible}):
        yield str(status), _failed(exchange, status, refused=status in refused)


def _failed(exchange: Exchange, status: int, *, refused: bool) -> dict[str, Any]:
    """Describe an answer that is no success: a refusal, a failed outcome, or either."""
    if status not in exchange.fallible:
        return {"$ref": f"#/components/responses/Refused{status}"}
    outcome = exchange.answers[200]
    schema = {"anyOf": [outcome, ref("Error")]} if refused else outcome
    return {
        "description": "the outcome of a call that failed",
        "content": {exchange.media_type: {"schema": schema}},
    }
