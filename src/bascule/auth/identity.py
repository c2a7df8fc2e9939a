"""Who is asking, and what that lets them do.

One table from role to permissions; what it does not name is refused. Below: msgspec. Above:
``tokens.py`` says whose token it is, ``guard.py`` asks ``Principal.may`` before every endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from msgspec import Struct

from bascule.model.role import Role

Permission = Literal[
    "identity:read",  # who one is oneself: for everybody with a valid token
    "registry:read",  # records with literal env and header values masked
    "registry:read_secrets",  # the same values unmasked, for those who start servers
    "registry:write",
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
    "metrics:read",
    "tools:use",
]
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)

# People look after the registry; a node follows it and reports; a client uses the tools of its
# task. Nobody has everything: an administrator who wants to call a tool makes a client token, so
# that the call has a task whose policy decides.
ALLOWED: Mapping[Role, frozenset[Permission]] = {
    "admin": frozenset(
        {
            "identity:read",
            "registry:read",
            "registry:write",
            "registry:accept",
            "servers:test",
            "nodes:read",
            "tokens:write",
            "secrets:write",
            "approvals:read",
            "approvals:decide",
            "audit:read",
            "metrics:read",
        }
    ),
    "operator": frozenset(
        {
            "identity:read",
            "registry:read",
            "registry:write",
            "servers:test",
            "nodes:read",
            "approvals:read",
            "audit:read",
            "metrics:read",
        }
    ),
    "approver": frozenset(
        {"identity:read", "registry:read", "approvals:read", "approvals:decide", "audit:read"}
    ),
    "viewer": frozenset(
        {
            "identity:read",
            "registry:read",
            "nodes:read",
            "approvals:read",
            "audit:read",
            "metrics:read",
        }
    ),
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


class Principal(Struct, frozen=True):
    """Whoever holds a valid token. ``task_id`` is set for clients and for nobody else."""

    name: str
    role: Role
    task_id: str | None
    token_id: str

    def may(self, permission: Permission) -> bool:
        """Say whether the role allows it; what no role names is allowed to nobody."""
        return permission in ALLOWED.get(self.role, frozenset())
