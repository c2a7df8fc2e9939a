"""The parameters of a request's query: each given once, and none but those that an endpoint knows.

A misspelt one would leave out what it was to say, and what parameters say is mostly a restriction.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from starlette.requests import Request
from starlette.types import Scope

from bascule.asgi.errors import Refused

#: What a flag may be called, in a parameter or a header.
FLAGS: Mapping[str, bool] = {"true": True, "1": True, "false": False, "0": False}
NO_FLAG = "must be true or false"


def only_parameters(request: Request, *names: str) -> None:
    """Refuse parameters of another name, with the nearest one."""
    for name in request.query_params:
        if name not in names:
            near = get_close_matches(name.lower(), names, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise wrong(name, f"is not a parameter of this request{meant}")


def no_parameters(scope: Scope) -> None:
    """Refuse parameters where none is known."""
    if scope["query_string"]:
        only_parameters(Request(scope))


def word(request: Request, name: str) -> str | None:
    """Return a parameter; one that is given twice is refused."""
    values = request.query_params.getlist(name)
    if len(values) > 1:
        raise wrong(name, "is given more than once")
    return values[0] if values else None


def flag(request: Request, name: str, *, default: bool = False) -> bool:
    """Return a parameter that is true or false."""
    given = word(request, name)
    if given is not None and given.lower() not in FLAGS:
        raise wrong(name, NO_FLAG)
    return default if given is None else FLAGS[given.lower()]


def number(request: Request, name: str, *, digits: int, wanted: str) -> int | None:
    """Return a parameter that is a number from 0 on; ``wanted`` says what it counts."""
    given = word(request, name)
    return None if given is None else number_of(given, name, digits=digits, wanted=wanted)


def milliseconds(request: Request, name: str, most: int) -> int:
    """Return a parameter that is a time in milliseconds; 0 where it is not given."""
    wanted = f"a number of milliseconds from 0 to {most}"
    given = number(request, name, digits=len(str(most)), wanted=wanted) or 0
    if given > most:
        raise wrong(name, f"must be {wanted}")
    return given


def number_of(text: str, name: str, *, digits: int, wanted: str) -> int:
    """Read a number, or say which parameter is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= digits):
        raise wrong(name, f"must be {wanted}")
    return int(text)


def wrong(name: str, problem: str) -> Refused:
    """Return the refusal of a request for one of its parameters."""
    return Refused("invalid_request", f"{name}: {problem}", details={"parameter": name})
