"""The description of the API as one page of plain HTML: no script, no style, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, TypeAlias

from checks import openapi

Schema: TypeAlias = dict[str, Any]

_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Bascule: the HTTP API</title>
</head>
<body>
<h1>Bascule: the HTTP API</h1>
<p>Every route of <code>bascule up</code>. Programs read the same as <a href="openapi.json">OpenAPI
3.1</a>. A token goes into the header <code>Authorization: Bearer …</code>; what its role must allow
stands beside each route. The routes of agents are there with <code>--agents</code> alone, and the
chat door under <code>/v1</code> speaks the API of OpenAI.</p>
"""
#: The parts of the page, each with the beginnings of its paths; the first that fits counts.
_PARTS = (
    ("Tools", ("/api/v1/tools",)),
    ("Registry", ("/api/v1/mcp", "/admin/api/mcp")),
    ("Agents", ("/api/agents",)),
    ("Tokens", ("/admin/api/tokens", "/api/v1/identity")),
    ("Process", ("/",)),
)
_LIMITS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern")


def render() -> str:
    """Return the page."""
    document = openapi.document()
    return "\n".join([_HEAD, *_routes(document), *_shapes(document), "</body>", "</html>", ""])


def _routes(document: Schema) -> Iterator[str]:
    left = dict(document["paths"])
    for title, beginnings in _PARTS:
        yield f"<h2>{title}</h2>"
        for path in [path for path in left if path.startswith(beginnings)]:
            for method, operation in left.pop(path).items():
                yield from _operation(document, f"{method.upper()} {path}", operation)


def _operation(document: Schema, name: str, operation: Schema) -> Iterator[str]:
    yield f'<h3 id="{operation["operationId"]}"><code>{escape(name)}</code></h3>'
    permission = operation.get("x-permission")
    needs = f"Needs <code>{permission}</code>." if permission else "Needs no token."
    yield f"<p>{_prose(operation['summary'])} {needs}</p>"
    if operation["parameters"]:
        yield from _table(
            ("parameter", "in", "value", ""), map(_parameter, operation["parameters"])
        )
    for kind, media in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Takes <code>{kind}</code>: {_type(media['schema'])}</p>"
    yield "<ul>"
    for status, answer in operation["responses"].items():
        yield f"<li>{status}: {_answer(document, answer)}</li>"
    yield "</ul>"


def _parameter(one: Schema) -> tuple[str, ...]:
    needed = "required" if one["required"] else ""
    return f"<code>{one['name']}</code>", one["in"], _type(one["schema"]), needed


def _answer(document: Schema, answer: Schema) -> str:
    if "$ref" in answer:
        codes = document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
        return f"<code>{escape(codes['description'])}</code>"
    bodies = [_type(media["schema"]) for media in answer.get("content", {}).values()]
    return escape(answer["description"]) + "".join(f", {body}" for body in bodies)


def _shapes(document: Schema) -> Iterator[str]:
    yield "<h2>Bodies</h2>"
    for name, schema in document["components"]["schemas"].items():
        yield f'<h3 id="{name}">{name}</h3>'
        if "description" in schema:
            yield f"<p>{_prose(schema['description'])}</p>"
        if "properties" in schema:
            needed = schema.get("required", ())
            rows = [
                (f"<code>{field}</code>", _type(value), "required" if field in needed else "")
                for field, value in schema["properties"].items()
            ]
            yield from _table(("field", "value", ""), rows)
        else:
            yield f"<p>{_type(schema)}</p>"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield '<table border="1">'
    yield "<tr>" + "".join(f"<th>{cell}</th>" for cell in header) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
    yield "</table>"


def _type(schema: Schema) -> str:
    """Return what a value may be, with links to the bodies it is made of."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{name}">{name}</a>'
    for key, word in (("anyOf", " or "), ("allOf", " with ")):
        if key in schema:
            return word.join(map(_type, schema[key]))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    limits = [f"{name} {schema[name]}" for name in _LIMITS if name in schema]
    return escape(", ".join([schema.get("type", "anything"), *limits]))


def _prose(text: str) -> str:
    """Return the words of a docstring; what stands between double backticks is code."""
    parts = escape(text).split("``")
    return "".join(f"<code>{one}</code>" if odd % 2 else one for odd, one in enumerate(parts))
