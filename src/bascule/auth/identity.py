"""Who is asking, and what that lets them do.

One table from role to permissions; what it does not name is refused. ``tokens.py`` says whose
token it is, the guard asks ``Principal.may`` before every endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from bascule.model.role import Role

Permission = Literal[
    "identity:read",  # who one is oneself: for everybody with a valid token
    "registry:read",  # records with literal env and header values masked
    "registry:read_secrets",  # the same values unmasked, for those who start servers
    "registry:write",
    "policy:write",  # the platform, people, and when approval is asked for
    "registry:accept",  # gives credentials new targets, and lets in what others propose
    "servers:test",  # starts or reaches a server to see what it offers
    "status:write",
    "nodes:read",
    "tokens:write",
    "secrets:write",
    "approvals:read",
    "approvals:ask",
    "approvals:decide",
    "audit:read",
    "audit:write",
    "audit:checkpoint",  # has the ledger's end signed, and its key replaced
    "metrics:read",
    "tools:use",
]
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)

# People look after the registry; a node follows it and reports; a client uses the tools of its
# task. Nobody has everything: an administrator who wants to call a tool makes a client token, so
# that the call has a task whose policy decides.
_VIEWER: frozenset[Permission] = frozenset(
    {
        "identity:read",
        "registry:read",
        "nodes:read",
        "approvals:read",
        "audit:read",
        "metrics:read",
    }
)
_OPERATOR = _VIEWER | frozenset[Permission]({"registry:write", "servers:test"})
_ADMIN = _OPERATOR | frozenset[Permission](
    {
        "policy:write",
        "registry:accept",
        "tokens:write",
        "secrets:write",
        "approvals:decide",
        "audit:checkpoint",
    }
)
ALLOWED: Mapping[Role, frozenset[Permission]] = {
    "admin": _ADMIN,
    "operator": _OPERATOR,
    "approver": frozenset(
        {"identity:read", "registry:read", "approvals:read", "approvals:decide", "audit:read"}
    ),
    "viewer": _VIEWER,
    "node": frozenset(
        {
            "identity:read",
            "registry:read",
            "registry:read_secrets",
            "status:write",
            "approvals:ask",
            "audit:write",
        }
    ),
    "client": frozenset({"identity:read", "tools:use"}),
}


#: A token's id, and the person for whom it speaks.
Owner: TypeAlias = tuple[str, str | None]


class Principal(Struct, frozen=True):
    """Whoever holds a valid token. ``task_id`` is set for clients and for nobody else.

    ``person`` is whose token it is, or whom one that ``acts_for_users`` speaks for in a request.
    ``tasks`` are those that an approver or viewer is limited to; None is all.
    """

    name: str
    role: Role
    task_id: str | None
    token_id: str
    person: str | None = None
    acts_for_users: bool = False
    #: Who made the token: a person, or a name.
    made_by: str | None = None
    tasks: tuple[str, ...] | None = None
    #: Whether it is the token of a page, which ends with the process.
    page: bool = False
    #: Whether what it asks for needs a code that it has not shown.
    unconfirmed: bool = False

    @property
    def owner(self) -> Owner:
        """Return whose what is kept for it is: its token's, for one person."""
        return self.token_id, self.person

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """Return all that the role allows, in alphabetical order."""
        return tuple(sorted(ALLOWED.get(self.role, ())))

    def may(self, permission: Permission) -> bool:
        """Say whether the role allows it; what no role names is allowed to nobody."""
        return permission in ALLOWED.get(self.role, frozenset())
