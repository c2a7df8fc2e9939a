"""Tokens and the identity that a token stands for."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from bascule.model.person import PERSON_PATTERN
from bascule.model.role import ROLES, Grant, Role, TokenRole

#: A token that lasts longer is one without an end, and should say so. Also: dates end somewhere.
MAX_TTL_SECONDS = 10 * 366 * 86_400
#: How many tasks an approver or viewer may be limited to by name.
MAX_TASKS = 64
#: ``altered``: what is kept of it was edited by somebody without the key; it is refused.
TokenState = Literal["valid", "expired", "altered"]
_Name = Annotated[str, Meta(min_length=1, max_length=128)]
_Tasks = Annotated[
    tuple[_Name, ...], Meta(extra_json_schema={"minItems": 1, "maxItems": MAX_TASKS})
]


class Identity(Struct, frozen=True):
    """Who asks, and where the registry stands; ``task`` is for client tokens.

    ``person`` is whose token it is; one that ``acts_for_users`` names a person in every request. A
    server may be newer than its client and know more roles.
    """

    name: str
    role: Annotated[str, Meta(extra_json_schema={"enum": list(ROLES)})]
    task: str | None = None
    store_id: str = ""
    revision: int = 0
    person: str | None = None
    acts_for_users: bool = False
    #: What the role allows, so that a page offers nothing that would be refused.
    permissions: tuple[str, ...] = ()
    #: Which parts that a process may be without it has: agents, approvals, secrets.
    serves: tuple[str, ...] = ()
    mark: str = ""
    #: Where tools and models are called, if not here.
    node_url: str | None = None


class NewToken(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to make: what it may do, for which task if it is a client's, how long.

    ``person`` is whose it is; a client's that ``acts_for_users`` is nobody's and names a person in
    every request. ``tasks`` limit what an approver or viewer sees and decides.
    """

    role: Role
    name: _Name | None = None
    task_id: _Name | None = None
    person: Annotated[str, Meta(pattern=PERSON_PATTERN)] | None = None
    acts_for_users: bool = False
    tasks: _Tasks | None = None
    ttl_seconds: Annotated[int, Meta(ge=1, le=MAX_TTL_SECONDS)] | None = None


class TokenShown(Struct, frozen=True, kw_only=True):
    """What is shown of a token; a link has what it ``grants``, a page's token is a ``page``."""

    id: str
    name: str
    role: TokenRole
    task_id: str | None
    person: str | None
    acts_for_users: bool
    tasks: tuple[str, ...] | None
    made_by: str | None
    grants: Grant | None
    page: bool
    created_at: str | None
    expires_at: str | None
    state: TokenState = "valid"


class TokenMade(TokenShown, frozen=True, kw_only=True):
    """A new token: ``token`` is in this answer and in no other."""

    token: str
    warnings: tuple[str, ...]


class TokenList(Struct, frozen=True):
    """What is kept of the tokens, the oldest first."""

    tokens: tuple[TokenShown, ...]


class TokenEnded(Struct, frozen=True):
    """The id of a token that was revoked."""

    deleted: str
