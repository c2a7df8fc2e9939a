"""What a request asks for: revisions, kinds, pages, conditions, and in whose name.

Everything here reads one thing from a request or refuses it with a 4xx that names the parameter.
Below: ``bascule.asgi``. Above: the endpoints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.requests import Request

from bascule.asgi.errors import Refused
from bascule.asgi.json import ANY_TAG, check_if_none_match, if_match, make_etag
from bascule.auth.identity import Principal
from bascule.control.registry.store import Author, Stored
from bascule.model.kinds import KINDS, SECTIONS, Kind

MAX_PAGE = 1_000
_REVISION = re.compile(r"[0-9]{1,15}", re.ASCII)
_TAG = re.compile(r'"([0-9]{1,15})"', re.ASCII)
_CURSOR = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
_WORDS = {"true": True, "1": True, "false": False, "0": False}


def author(request: Request, note: str = "") -> Author:
    """Return in whose name a request writes."""
    asking = principal(request)
    return Author(asking.name, note, trusted=asking.may("registry:accept"))


def principal(request: Request) -> Principal:
    """Return who asks; the guard has made sure that somebody does."""
    found = request.scope.get("principal")
    if not isinstance(found, Principal):
        raise Refused("unauthenticated", "a bearer token is needed")
    return found


def word(request: Request, name: str) -> str | None:
    """Return a query parameter; one that is given twice is refused."""
    values = request.query_params.getlist(name)
    if len(values) > 1:
        raise _wrong(name, "is given more than once")
    return values[0] if values else None


def flag(request: Request, name: str, *, default: bool = False) -> bool:
    """Return a parameter that is true or false."""
    given = word(request, name)
    if given is not None and given.lower() not in _WORDS:
        raise _wrong(name, "must be true or false")
    return _WORDS[given.lower()] if given is not None else default


def revision(request: Request, name: str) -> int | None:
    """Return a revision from the query."""
    given = word(request, name)
    return None if given is None else revision_of(given, name)


def revision_of(text: str, name: str) -> int:
    """Read a revision, or say which parameter is none."""
    if not _REVISION.fullmatch(text):
        raise _wrong(name, "must be a revision: a number from 0 on")
    return int(text)


def limit(request: Request, default: int | None = None) -> int | None:
    """Return how many items a page may have."""
    given = word(request, "limit")
    if given is None:
        return default
    if not _REVISION.fullmatch(given) or not 1 <= int(given) <= MAX_PAGE:
        raise _wrong("limit", f"must be a number from 1 to {MAX_PAGE}")
    return int(given)


def cursor(request: Request) -> str | None:
    """Return after which key a page begins."""
    given = word(request, "cursor")
    if given is not None and not _CURSOR.fullmatch(given):
        raise _wrong("cursor", "must be a next_cursor of an earlier page")
    return given


def kinds(request: Request) -> tuple[Kind, ...] | None:
    """Return the kinds of ``kind=server,task``; None stands for all of them."""
    given = word(request, "kind")
    return None if given is None else tuple(kind_of(name, "kind") for name in given.split(","))


def kind_of(name: str, where: str) -> Kind:
    """Return a kind by its name or by the name of its collection."""
    kinds: Mapping[str, Kind] = {**SECTIONS, **{kind: kind for kind in KINDS}}
    if name not in kinds:
        raise _wrong(where, f"must be one of: {', '.join(KINDS)}")
    return kinds[name]


def tag_of(stored: Stored) -> str:
    """Return the ETag of an object: the revision that last changed it."""
    return make_etag(stored.revision)


def expected_revision(request: Request, current: Stored | None) -> int | None:
    """Return what If-Match and If-None-Match expect of an object; 0: it must not be there.

    A single tag is not compared here but inside the transaction, which sees every writer.
    """
    if request.headers.get("if-none-match", "").strip() == ANY_TAG:
        if if_match(request) is not None:
            raise Refused("conflict", "If-Match and If-None-Match: * never hold together")
        return 0
    check_if_none_match(request, None if current is None else tag_of(current))
    tags = if_match(request)
    if tags is None:
        return None
    if len(tags) == 1 and (single := _TAG.fullmatch(tags[0])):
        return int(single[1])
    return _any_of(tags, current)


def _any_of(tags: tuple[str, ...], current: Stored | None) -> int:
    if current is not None and (tags == (ANY_TAG,) or tag_of(current) in tags):
        return current.revision
    raise Refused(
        "conflict",
        "it is not at a revision that If-Match names; read it again",
        details={"current_revision": 0 if current is None else current.revision},
    )


def _wrong(name: str, problem: str) -> Refused:
    return Refused("invalid_request", f"{name}: {problem}", details={"parameter": name})
