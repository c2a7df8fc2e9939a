"""What a request asks for: revisions, kinds, pages, conditions, and in whose name.

Everything here reads one thing from a request or refuses it with a 4xx that names the parameter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.requests import Request

from bascule.asgi.errors import Refused
from bascule.asgi.json import ANY_TAG, check_if_none_match, if_match, make_etag
from bascule.asgi.parameters import number, word, wrong
from bascule.auth.identity import Principal
from bascule.control.registry.store import Author, Stored
from bascule.model.kinds import KINDS, SECTIONS, Kind

MAX_PAGE = 1_000
_DIGITS = 15
_REVISION = "a revision number, 0 or more"
_TAG = re.compile(r'"([0-9]{1,15})"', re.ASCII)
_CURSOR = re.compile(r"[A-Za-z0-9_.:@-]{1,128}", re.ASCII)


def author(request: Request, note: str = "") -> Author:
    """Return in whose name a request writes."""
    return author_of(principal(request), note)


def author_of(asking: Principal, note: str = "") -> Author:
    """Return somebody as who writes."""
    return Author(
        asking.name,
        note,
        trusted=asking.may("registry:accept"),
        governs=asking.may("policy:write"),
        unconfirmed=asking.unconfirmed,
    )


def principal(request: Request) -> Principal:
    """Return who asks; the guard has made sure that somebody does."""
    found = request.scope.get("principal")
    if not isinstance(found, Principal):
        raise Refused("unauthenticated", "a bearer token is needed")
    return found


def acting(request: Request) -> str:
    """Return in whose name something is done that the ledger keeps."""
    asking = principal(request)
    return f"{asking.role}:{asking.name}"


def revision(request: Request, name: str) -> int | None:
    """Return a revision from the query."""
    return number(request, name, digits=_DIGITS, wanted=_REVISION)


def limit(request: Request) -> int | None:
    """Return how many items a page may have."""
    wanted = f"a number from 1 to {MAX_PAGE}"
    found = number(request, "limit", digits=_DIGITS, wanted=wanted)
    if found is not None and not 1 <= found <= MAX_PAGE:
        raise wrong("limit", f"must be {wanted}")
    return found


def cursor(request: Request) -> str | None:
    """Return after which key a page begins."""
    given = word(request, "cursor")
    if given is not None and not _CURSOR.fullmatch(given):
        raise wrong("cursor", "must be a next_cursor of an earlier page")
    return given


def kinds(request: Request) -> tuple[Kind, ...] | None:
    """Return the kinds of ``kind=server,task``; None stands for all of them."""
    given = word(request, "kind")
    return None if given is None else tuple(kind_of(name, "kind") for name in given.split(","))


def kind_of(name: str, where: str) -> Kind:
    """Return a kind by its name or by the name of its collection."""
    kinds: Mapping[str, Kind] = {**SECTIONS, **{kind: kind for kind in KINDS}}
    if name not in kinds:
        raise wrong(where, f"must be one of: {', '.join(KINDS)}")
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
            raise Refused(
                "conflict", "If-Match and If-None-Match: * exclude each other; send one of them"
            )
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
        "the record is not at the revision that If-Match names; read it again",
        details={"current_revision": 0 if current is None else current.revision},
    )
