"""For whom a request speaks: its token's own person, or the one that ``X-Bascule-User`` names.

Only a client token that was made for it may name people, and it must name one wherever something
is done for somebody. From any other token the header is refused at every route, never ignored.
"""

from __future__ import annotations

from msgspec.structs import replace
from starlette.types import Scope

from bascule.asgi.errors import Refused
from bascule.asgi.head import head_of
from bascule.auth.identity import Principal
from bascule.model.json import JsonValue
from bascule.model.person import PERSON_WORDS, is_person_id
from bascule.wire.narrowing import USER

#: The header's name, as requests have it.
PERSON = USER.lower().encode()
#: The field of a chat request that may name a person.
_SAID = "user"


def check_named(scope: Scope) -> str:
    """Return the person that a request's header names; raise Refused if its token may not."""
    principal: Principal = scope["principal"]
    if not principal.acts_for_users:
        raise Refused(
            "person_refused",
            f"{USER}: this token speaks for nobody else; one that does is made with "
            "bascule tokens create --role client --task T --act-for-users",
            details={"header": USER},
        )
    if sum(name == PERSON for name, _ in scope["headers"]) > 1:
        raise _wrong(USER, "is given more than once")
    return _person(head_of(scope).fields[PERSON].decode("latin-1"), USER)


def speaker(scope: Scope, said: JsonValue = None) -> Principal:
    """Return who sends a request, with the person for whom it speaks; raise Refused.

    ``said`` is whom the request itself names, where its task lets it.
    """
    principal: Principal = scope["principal"]  # the guard lets nobody else come here
    if not principal.acts_for_users:
        return principal
    named = check_named(scope) if PERSON in head_of(scope).fields else None
    own = None if said is None else _person(said, _SAID)
    if named is None and own is None:
        raise _wrong(USER, "is required: this token acts for users, and must name one")
    if named is not None and own is not None and named != own:
        raise _wrong(USER, f"names another person than {_SAID!r} in the request")
    return replace(principal, person=named or own)


def _person(text: JsonValue, where: str) -> str:
    if not isinstance(text, str) or not is_person_id(text):
        raise _wrong(where, PERSON_WORDS)
    return text


def _wrong(where: str, problem: str) -> Refused:
    details = {"header": where} if where == USER else {"field": where}
    return Refused("invalid_request", f"{where}: {problem}", details=details)
